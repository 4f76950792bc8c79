"""The YAML's `train.lora`: little is trained beside a frozen model."""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from transformer_mt.settings.section import Conflict, NonNegative, Section


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al. 2021): trains low-rank matrices that are added to frozen ones.
    The model in the run's folder has them merged.
    """

    rank: NonNegative = 0
    """Rank of the added matrices; 0 turns LoRA off, 8 to 64 are usual."""
    alpha: float = Field(32.0, gt=0.0)
    """The product of both matrices is multiplied by alpha / rank."""
    modules: list[Literal["attention", "feed_forward"]] = Field(["attention", "feed_forward"], min_length=1)
    """Adapted sublayers."""

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        if self.rank and config.init_from is None:
            yield "train.lora.rank must be left out without init_from, which names the frozen model"
        if self.rank and config.model.kind != "transformer":
            yield f"train.lora.rank must be left out with model.kind: {config.model.kind}"
