"""What a training begins with besides a run: a model of the Hugging Face hub, halves of two runs; and the
vocabulary, the YAML's `tokenizer` section.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from transformer_mt.settings.section import Changeable, Conflict, Probability, Searched, Section, one_of


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
"""The beginnings of a training; a word is the folder of a run."""


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
    """Unicode normalisation. auto is compose, or that of `file` or the parent. compose joins a letter and
    its marks and turns white space into spaces; NFKC changes more, such as 10² to 102.
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
