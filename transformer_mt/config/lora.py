"""The YAML's `train.lora`: little is trained beside a frozen model."""

from typing import Any, Literal

from pydantic import Field

from transformer_mt.settings.section import NonNegative, Section


class LoraConfig(Section):
    """Low-rank adaptation (Hu et al. 2021): thin matrices beside frozen ones are trained instead of these.
    The model in the run's folder has them added in.
    """

    rank: NonNegative = 0
    """Rank of what is added to a matrix; 0 turns it off, 8 to 64 are usual."""
    alpha: float = Field(32.0, gt=0.0)
    """The product of both matrices is multiplied by alpha / rank."""
    modules: list[Literal["attention", "feed_forward"]] = Field(["attention", "feed_forward"], min_length=1)
    """Where it is added."""

    def fits(self, config: Any) -> None:
        if self.rank and config.init_from is None:
            raise ValueError(
                "train.lora.rank must be left out without init_from, which gives what stays as it is"
            )
        if self.rank and config.model.kind != "transformer":
            raise ValueError(f"train.lora.rank must be left out with model.kind: {config.model.kind}")
