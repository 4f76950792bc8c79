"""A whole config: all sections, and what must fit between them. `load.py` reads it and writes it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from transformer_mt.config.build_part import parts_of
from transformer_mt.config.data_section import DataConfig
from transformer_mt.config.decode_section import DecodeConfig, EvaluateConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.config.train_section import TrainConfig
from transformer_mt.parts import load_part
from transformer_mt.settings.section import (
    Changeable,
    Conflict,
    Probability,
    Searched,
    Section,
    one_of,
    pattern,
)


class PublicModel(Section):
    """A model on the Hugging Face hub, or in a local folder in its layout."""

    huggingface: str = Field(min_length=1)
    """Name on the hub (`Helsinki-NLP/opus-mt-en-de`) or a local folder."""
    revision: str | None = None
    """Commit, tag or branch on the hub that pins the model; by default the newest state."""

    def __str__(self) -> str:
        return self.huggingface


class Halves(Section):
    """Parts of a Transformer that were trained alone (Rothe et al. 2020); a part that is left out begins with
    random weights.
    """

    encoder: str | None = Field(None, min_length=1)
    """A run with model.kind: encoder."""
    decoder: str | None = Field(None, min_length=1)
    """A run with model.kind: decoder."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.encoder is None and self.decoder is None:
            yield "init_from must name an encoder, a decoder or both, but names none"

    @property
    def folders(self) -> dict[str, str]:
        """The run of each part that is given."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        return {part: folder for part, folder in parts.items() if folder is not None}

    def __str__(self) -> str:
        return " and ".join(self.folders.values())


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "a run's folder"
    parts = value if isinstance(value, dict) else {}
    is_halves = isinstance(value, Halves) or bool(parts.keys() & set(Halves.model_fields))
    return Halves.__name__ if is_halves else PublicModel.__name__


_Beginning = Annotated[
    Annotated[str, Field(min_length=1), Tag("a run's folder")]
    | Annotated[PublicModel, Tag(PublicModel.__name__)]
    | Annotated[Halves, Tag(Halves.__name__)],
    Discriminator(_kind),
]
if TYPE_CHECKING:
    Beginning = str | PublicModel | Halves
else:
    Beginning = one_of(_Beginning, "a run's folder, {huggingface: NAME} or {encoder: RUN, decoder: RUN}")
"""What a training can start from; a plain string is the folder of a run."""


def _check_file(file: Any) -> Any:
    files = file if isinstance(file, list) else [file]
    if file is not None and (not all(isinstance(name, str) for name in files) or len(files) not in (1, 2)):
        raise ValueError(
            f"tokenizer.file must be a SentencePiece model, or a list of two, source and target, but is "
            f"{file!r}"
        )
    return file


class TokenizerConfig(Section):
    """SentencePiece, trained on the training pairs when the run begins."""

    file: Annotated[str | list[str] | None, BeforeValidator(_check_file)] = None
    """An existing SentencePiece model to use instead of learning one, or one for each side: [src, tgt]."""
    kind: Literal["bpe", "unigram", "char", "word"] = "bpe"
    """Kind of tokens: byte-pair merges or a unigram language model; char and word take every character
    or word, or the most frequent if there are more than vocab_size; word needs byte_fallback: false.
    """
    vocab_size: Annotated[int, Field(ge=8, le=1_000_000), Searched(500, 32_000, log=True)] = 8000
    """Number of tokens, including special tokens and the 256 bytes (per side if not shared)."""
    shared: bool = True
    """Share one vocabulary between both languages."""
    byte_fallback: bool = True
    """Spell unknown characters as bytes, so that nothing is ever <unk>."""
    character_coverage: float = Field(0.9999, ge=0.98, le=1.0)
    """Share of the text's characters that get their own token."""
    bpe_dropout: Annotated[Changeable[Probability], Searched(0.0, 0.3)] = 0.0
    """Probability of skipping a BPE merge in training, sampled again for each word in each epoch
    (Provilkov 2020).
    """
    normalization: Literal["auto", "compose", "nmt_nfkc", "nfkc", "identity"] = "auto"
    """Unicode normalisation. auto takes it from `file` or the parent, and is compose without either. compose
    joins a letter and its marks and turns white space into spaces; NFKC changes more, such as 10² to 102.
    """

    @property
    def files(self) -> list[str]:
        """The files of `file`."""
        return [self.file] if isinstance(self.file, str) else self.file or []

    @model_validator(mode="after")
    def _auto_asks_for_nothing(self) -> "TokenizerConfig":
        if self.normalization == "auto":
            self.model_fields_set.discard("normalization")
        return self

    def conflicts(self) -> Iterator[Conflict]:
        if self.bpe_dropout and self.kind != "bpe" and not self.file:
            yield (
                f"tokenizer.bpe_dropout must be 0.0 with tokenizer.kind: {self.kind}, but is "
                f"{self.bpe_dropout}"
            )
        if self.kind == "word" and self.byte_fallback:
            yield "tokenizer.byte_fallback must be false with tokenizer.kind: word, but is true"


NAME_PATTERN = pattern(r"^\w[\w.+-]*$", "letters, digits and, after the first, the marks . + -")
"""Names that become the name of a folder: runs/NAME."""
LONGEST_ROW = 512
"""Attention time grows with the square of a row's length: longer rows cost more than padding does."""


class Config(Section):
    """One experiment."""

    name: Changeable[str] = Field(pattern=NAME_PATTERN)
    """Name of the run in folder runs/NAME; by default the YAML file's."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Random seed of the initial weights, data order and dropout."""
    init_from: Beginning | None = None
    """Folder of a trained run to start from, {huggingface: ...} for a public model, or {encoder: ...,
    decoder: ...} for runs of each half. It provides weights, vocabulary and omitted `model` and
    `tokenizer` keys.
    """
    data: DataConfig
    """The sentence pairs."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """The vocabulary."""
    model: ModelConfig = ModelConfig()
    """The network."""
    train: TrainConfig = TrainConfig()
    """The training."""
    decode: Changeable[DecodeConfig] = DecodeConfig()
    """The search."""
    parts: Changeable[dict[str, str]] = Field({})
    """Origins of parts that are not in this package; a run writes them for users of its model elsewhere."""
    evaluate: Changeable[EvaluateConfig] = EvaluateConfig()
    """The scores."""

    def why_padded(self) -> str | None:
        """Why batches must have one sentence per row; None if they may be packed."""
        model, train = self.model, self.train
        if model.kind in ("recurrent", "encoder"):
            return f"model.kind is {model.kind}"
        if model.attention.cross != "global" or model.attention.hard:
            return "model.attention looks at one part of a source"
        if train.guided_alignment.weight:
            return "train.guided_alignment is on"
        # The default may be packed: a usual config is read without importing torch.
        is_usual = train.loss == TrainConfig.model_fields["loss"].default
        if not is_usual and not getattr(load_part("loss", train.loss), "packed", True):
            return f"train.loss is {train.loss}, which reads one sentence in a row"
        if self.data.max_length > LONGEST_ROW:
            return f"data.max_length is {self.data.max_length}, above {LONGEST_ROW}"
        return None

    def part_conflicts(self) -> Iterator[Conflict]:
        if self.train.packed is True and (reason := self.why_padded()):
            yield f"train.packed must be auto or false where {reason}, but is true"
        for change, settings in parts_of("change", self.data.changes, "data.changes"):
            yield from change.conflicts(self, **settings)

    def conflicts(self) -> Iterator[Conflict]:
        waiting: list[Section] = [self.data, self.tokenizer, self.model, self.train, self.decode]
        for section in waiting:
            yield from section.conflicts_with(self)
            values = (getattr(section, name) for name in type(section).model_fields)
            waiting += [value for value in values if isinstance(value, Section)]
