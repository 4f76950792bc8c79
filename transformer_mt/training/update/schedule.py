"""Learning rates as functions of the update's number (1, 2, ...). They have no state, so a resumed run
cannot get out of step.
"""

import math

from transformer_mt.config import TrainConfig


def inverse_sqrt(step: int, peak: float, warmup: int) -> float:
    """Linear to `peak` over the warm-up, then peak * sqrt(warmup / step) (paper, equation 3, scaled to its
    peak).
    """
    if step < warmup:
        return peak * step / warmup
    return peak * math.sqrt(max(1, warmup) / step)


def linear(step: int, peak: float, warmup: int, end: int) -> float:
    """Linear to `peak` over the warm-up, then linear to zero just after update `end`."""
    return peak * min(_warmup_factor(step, warmup), 1 - _decay_progress(step, warmup, end))


def cosine(step: int, peak: float, warmup: int, end: int) -> float:
    """Linear to `peak` over the warm-up, then half a cosine to zero just after update `end`."""
    if step < warmup:
        return peak * step / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * _decay_progress(step, warmup, end)))


def constant(step: int, peak: float, warmup: int) -> float:
    """Linear to `peak` over the warm-up, then `peak`."""
    return peak * _warmup_factor(step, warmup)


def learning_rate(step: int, config: TrainConfig) -> float:
    """The learning rate of update `step` under the config's schedule."""
    peak, warmup, end = config.learning_rate, config.warmup, config.max_updates
    match config.schedule:
        case "inverse_sqrt":
            return inverse_sqrt(step, peak, warmup)
        case "linear":
            return linear(step, peak, warmup, end)
        case "cosine":
            return cosine(step, peak, warmup, end)
        case "constant":
            return constant(step, peak, warmup)


def _warmup_factor(step: int, warmup: int) -> float:
    return min(1.0, step / max(1, warmup))


def _decay_progress(step: int, warmup: int, end: int) -> float:
    """Completed fraction of the decay. It is 1 only after the last update, so no update has rate zero."""
    return min(1.0, max(0, step - warmup) / max(1, end + 1 - warmup))
