"""A hypothesis, and the length penalty by which hypotheses are ranked. Needs no torch: engines without it use
this too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


class NotFiniteError(ArithmeticError):
    """The logits of a model were not finite, and a search found nothing."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: list[int]
    """Without BOS, with EOS."""
    log_prob: float
    """Natural logarithm of the probability the model gives it."""
    score: float
    """The number that hypotheses are ranked by: log_prob plus what rules add, over the length penalty."""


@dataclass(frozen=True)
class LengthPenalty:
    """The number that log-probabilities are divided by, so that long translations are not at a disadvantage.

    `plain`: length^a, so that a = 0 ranks by probability and a = 1 by the mean log-probability of a token.
    `gnmt`: ((5 + length) / 6)^a (Wu et al. 2016, equation 14). The length counts EOS.
    """

    alpha: float = 1.0
    form: Literal["plain", "gnmt"] = "plain"

    def __call__(self, length: int) -> float:
        return float(length if self.form == "plain" else (5 + length) / 6) ** self.alpha


def ranked(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Best first."""
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)
