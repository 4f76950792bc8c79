"""A whole config: all sections, and what must fit between them. `load.py` reads it, `dump.py` writes it."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from transformer_mt.config.data import DataConfig
from transformer_mt.config.decode import DecodeConfig
from transformer_mt.config.evaluate import EvaluateConfig
from transformer_mt.config.model import ModelConfig
from transformer_mt.config.packing import why_padded
from transformer_mt.config.public_model import Beginning
from transformer_mt.config.removed import without_removed_keys
from transformer_mt.config.tokenizer import TokenizerConfig
from transformer_mt.config.train import TrainConfig
from transformer_mt.settings.objective import BY_KIND
from transformer_mt.settings.section import Changeable, Section

NAME_PATTERN = r"^\w[\w.+-]*$"
"""Names of what has a folder: runs/NAME."""


class Config(Section):
    """One experiment."""

    name: Changeable[str] = Field(pattern=NAME_PATTERN)
    """The run's folder is runs/NAME; by default the name of the YAML file."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """The seed of everything random: initial weights, order of the data, dropout."""
    init_from: Beginning | None = None
    """Folder of a trained run to begin from, {huggingface: ...} for a public model, or {encoder: ...,
    decoder: ...} for runs of each half: its weights, its vocabulary, and its `model` and `tokenizer` keys
    where they are left out.
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
    evaluate: Changeable[EvaluateConfig] = EvaluateConfig()
    """The scores."""

    @property
    def needs_links(self) -> bool:
        """Whether the training needs word alignments of its pairs."""
        terms = self.data.terms
        return self.train.guided_alignment.weight > 0 or (terms.share > 0 and terms.file is None)

    @property
    def guided_layer(self) -> Literal["auto"] | int | None:
        """The decoder layer whose first head learns to align words, as the config names it; None where none
        does.
        """
        guided = self.train.guided_alignment
        return guided.layer if guided.weight else None

    @model_validator(mode="before")
    @classmethod
    def _drop_removed_keys(cls, values: Any) -> Any:
        return without_removed_keys(values)

    @model_validator(mode="after")
    def _objectives_fit_the_kind(self) -> "Config":
        if self.init_from and "kind" not in self.model.model_fields_set:
            return self  # the kind is the parent's; checked again with it
        may, data = BY_KIND[self.model.kind], self.data
        sets = [
            *data.entries,
            *(corpus for corpus in (*data.valid_sets, *data.test) if not corpus.is_held_out),
        ]
        if wrong := next((corpus for corpus in sets if corpus.objective not in may), None):
            raise ValueError(
                f"objective must be {' or '.join(may)} with model.kind: {self.model.kind}, but "
                f"{wrong.title} has {wrong.objective}"
            )
        is_half = self.model.kind in ("encoder", "decoder")
        if is_half and not (self.tokenizer.shared or self.init_from):
            raise ValueError(
                f"tokenizer.shared must be true with model.kind: {self.model.kind}, but is false"
            )
        if is_half and (tag := next((corpus.tag for corpus in sets if corpus.tag), None)):
            raise ValueError(f"tag must be left out with model.kind: {self.model.kind}, but is {tag}")
        if is_half and data.language_pieces in (True, "both"):
            raise ValueError(
                f"data.language_pieces must be auto or false with model.kind: {self.model.kind}, but is "
                f"{str(data.language_pieces).lower()}"
            )
        if data.augment.is_on and "classification" in data.objectives:
            raise ValueError("data.augment must be left out with objective: classification")
        if ("classification" in data.objectives) != bool(data.labels):
            raise ValueError("data.labels must be the labels of corpora with objective: classification")
        return self

    @model_validator(mode="after")
    def _terms_fit(self) -> "Config":
        terms = self.data.terms
        if not terms.share:
            if terms.file:
                raise ValueError("data.terms.file must be left out with data.terms.share: 0")
            return self
        if not (self.tokenizer.shared or self.init_from):
            raise ValueError("tokenizer.shared must be true with data.terms.share, but is false")
        if "translation" not in self.data.objectives:
            raise ValueError("data.terms.share must be 0 without training corpora of translations")
        return self

    @model_validator(mode="after")
    def _guided_alignment_fits(self) -> "Config":
        guided = self.train.guided_alignment
        corpora = sum(entry.objective == "translation" for entry in self.data.entries)
        if guided.files and not self.needs_links:
            raise ValueError("train.guided_alignment.file must be left out where nothing uses alignments")
        if guided.files and len(guided.files) != corpora:
            raise ValueError(
                f"train.guided_alignment.file must be a file for each training corpus of translations "
                f"({corpora}), but is {len(guided.files)}"
            )
        if not guided.weight:
            return self
        if self.model.kind != "transformer":
            raise ValueError(
                f"train.guided_alignment.weight must be 0 with model.kind: {self.model.kind}, but is "
                f"{guided.weight:g}"
            )
        is_the_parents = self.init_from and "num_decoder_layers" not in self.model.model_fields_set
        if is_the_parents or guided.layer == "auto":
            return self
        if guided.layer > (layers := self.model.num_decoder_layers):
            raise ValueError(
                f"train.guided_alignment.layer must be at most model.num_decoder_layers ({layers}), but is "
                f"{guided.layer}"
            )
        return self

    @model_validator(mode="after")
    def _parts_are_of_a_parent(self) -> "Config":
        key = "train.lora.rank" if self.train.lora.rank else "train.freeze" if self.train.freeze else None
        if key is not None and self.init_from is None:
            raise ValueError(f"{key} must be left out without init_from, which gives what stays as it is")
        if key is not None and self.model.kind != "transformer":
            raise ValueError(f"{key} must be left out with model.kind: {self.model.kind}")
        return self

    @model_validator(mode="after")
    def _new_pieces_are_a_parents(self) -> "Config":
        data = self.data
        key = "new_languages" if data.new_languages else "new_pieces.text" if data.new_pieces.text else None
        if key is not None and self.init_from is None:
            raise ValueError(f"data.{key} must be left out without init_from, whose vocabulary gets them")
        return self

    @model_validator(mode="after")
    def _language_pieces_of_targets_are_shared(self) -> "Config":
        if self.data.language_pieces == "both" and not self.tokenizer.shared and not self.init_from:
            raise ValueError("tokenizer.shared must be true with data.language_pieces: both, but is false")
        return self

    @model_validator(mode="after")
    def _can_be_packed(self) -> "Config":
        if self.train.packed is True and (reason := why_padded(self.model, self.train, self.data)):
            raise ValueError(f"train.packed must be auto or false where {reason}, but is true")
        return self

    @model_validator(mode="after")
    def _check_update_tokens(self) -> "Config":
        if 0 < self.train.update_tokens < self.data.max_length:
            raise ValueError(
                f"train.update_tokens must be at least data.max_length ({self.data.max_length}), "
                f"but is {self.train.update_tokens}"
            )
        return self

    @model_validator(mode="after")
    def _check_batch_tokens(self) -> "Config":
        if self.train.batch_tokens != "auto" and self.data.max_length > self.train.batch_tokens:
            raise ValueError(
                f"train.batch_tokens must be at least data.max_length ({self.data.max_length}), "
                f"but is {self.train.batch_tokens}"
            )
        return self
