"""Learning rates as functions of the update's number (1, 2, ...). They have no state, so a resumed run
cannot get out of step.
"""

import math
from typing import Any

from transformer_mt.config import TrainConfig
from transformer_mt.config.build_part import part_class, part_settings


class Schedule:
    """The base of `train.schedule`: linear to the peak over the warm-up, then a share of the peak."""

    def __init__(self, config: TrainConfig) -> None:
        self.peak, self.warmup, self.end = config.learning_rate, config.warmup, config.max_updates

    def rate(self, step: int) -> float:
        """The learning rate of update `step`."""
        if step < self.warmup:
            return self.peak * step / self.warmup
        return self.peak * self.share(step)

    def share(self, step: int) -> float:
        """The share of the peak at an update after the warm-up."""
        raise NotImplementedError

    def decayed(self, step: int) -> float:
        """The fraction of the way from the warm-up to the end. It is 1 only after the last update, so no
        update has rate zero.
        """
        return min(1.0, max(0, step - self.warmup) / max(1, self.end + 1 - self.warmup))


class InverseSqrt(Schedule):
    """peak * sqrt(warmup / step) (paper, equation 3, scaled to its peak)."""

    def share(self, step: int) -> float:
        return math.sqrt(max(1, self.warmup) / step)


class LinearDecay(Schedule):
    """Linear to zero just after the last update."""

    def share(self, step: int) -> float:
        return 1 - self.decayed(step)


class CosineDecay(Schedule):
    """Half a cosine to zero just after the last update."""

    def share(self, step: int) -> float:
        return 0.5 * (1 + math.cos(math.pi * self.decayed(step)))


class ConstantRate(Schedule):
    """The peak."""

    def share(self, step: int) -> float:
        return 1.0


def learning_rate(step: int, config: TrainConfig) -> float:
    """The learning rate of update `step` under the config's schedule."""
    return build_schedule(config).rate(step)


def build_schedule(config: TrainConfig) -> Schedule:
    """The schedule of `train.schedule`."""
    key = "train.schedule"
    kind: Any = part_class("schedule", config.schedule, key, Schedule)
    schedule: Schedule = kind(config, **part_settings(kind, config.schedule, key))
    return schedule
