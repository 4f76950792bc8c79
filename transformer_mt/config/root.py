"""A whole config: all sections, and what must fit between them. `load.py` reads it, `dump.py` writes it."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from transformer_mt.config.build_part import parts_of
from transformer_mt.config.data_section import DataConfig
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.config.evaluate_section import EvaluateConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.config.public_model import Beginning, TokenizerConfig
from transformer_mt.config.train_section import TrainConfig
from transformer_mt.parts import load_part
from transformer_mt.settings.section import Changeable, Conflict, Section, pattern

NAME_PATTERN = pattern(r"^\w[\w.+-]*$", "letters, digits and, after the first, the marks . + -")
"""Names of what has a folder: runs/NAME."""
LONGEST_ROW = 512
"""Attention takes time with the square of a row: longer rows cost more than padding does."""


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

    def why_padded(self) -> str | None:
        """Why batches must have one sentence in a row; None if they may be packed."""
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
