"""A whole config: all sections, and what must fit between them. `load.py` reads it, `dump.py` writes it."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from transformer_mt.config.data_section import DataConfig
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.config.evaluate_section import EvaluateConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.config.packable import why_padded
from transformer_mt.config.public_model import Beginning
from transformer_mt.config.tokenizer_section import TokenizerConfig
from transformer_mt.config.train_section import TrainConfig
from transformer_mt.settings.section import Changeable, Conflict, Section, pattern

NAME_PATTERN = pattern(r"^\w[\w.+-]*$", "letters, digits and, after the first, the marks . + -")
"""Names of what has a folder: runs/NAME."""


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
    """Where parts come from that are not of this package; a run writes it, for those who use it elsewhere."""
    evaluate: Changeable[EvaluateConfig] = EvaluateConfig()
    """The scores."""

    def part_conflicts(self) -> Iterator[Conflict]:
        reason = why_padded(self.model, self.train, self.data) if self.train.packed is True else None
        if reason:
            yield f"train.packed must be auto or false where {reason}, but is true"

    def conflicts(self) -> Iterator[Conflict]:
        waiting: list[Section] = [self.data, self.tokenizer, self.model, self.train, self.decode]
        for section in waiting:
            yield from section.conflicts_with(self)
            values = (getattr(section, name) for name in type(section).model_fields)
            waiting += [value for value in values if isinstance(value, Section)]
