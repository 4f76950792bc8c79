"""The base of every metric: statistics of each sentence whose sums give the score of a test set."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.companion import shown
from transformer_mt.errors import InputError

Statistics = NDArray[np.float64]
"""[sentences, k], of one set of translations."""
References = Sequence[Sequence[str]]
"""The references of each sentence."""


@dataclass(frozen=True)
class Score:
    """One metric of one set of translations."""

    name: str
    value: float
    signature: str
    digits: int = 2
    """Decimal digits worth showing."""

    def __str__(self) -> str:
        return f"{self.name} {self.value:.{self.digits}f}  {self.signature}"


class Metric(ABC):
    """One way to score translations.

    The score of a test set is a function of sums over its sentences, so that a part of the test set or a
    sample of its sentences is scored without looking at the text again.
    """

    name: str
    higher_is_better: bool | None = True
    """None for a metric of which it is not known."""
    digits: int = 2
    """Decimal digits worth showing."""

    @abstractmethod
    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """[sentences, k]: what of each sentence is summed."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value: there may be more errors than words, and what a command prints is
        not known.
        """
        if self.higher_is_better is None:
            return -math.inf, math.inf
        return 0.0, 100.0 if self.higher_is_better else math.inf

    @abstractmethod
    def value(self, sums: Sequence[float]) -> float:
        """The score, of the k sums."""

    def sentence_value(self, sums: Sequence[float]) -> float:
        """The score of a single sentence, for lists sorted by it."""
        return self.value(sums)

    @abstractmethod
    def signature(self, references: References) -> str:
        """How the score is computed."""

    def score(self, sources: Sequence[str], translations: Sequence[str], references: References) -> Score:
        """The score of a test set. InputError where the numbers of translations and references differ."""
        if len(translations) != len(references):
            raise InputError(
                f"there must be references for each translation, but there are {len(references):,} for "
                f"{len(translations):,}"
            )
        statistics = self.statistics(sources, translations, references)
        if np.ndim(statistics) != 2 or len(statistics) != len(translations):
            raise InputError(
                f"{shown(type(self))}.statistics must give an array [sentences, k] of {len(translations):,} "
                f"rows, but gives {list(np.shape(statistics))}"
            )
        value = self.value(np.asarray(statistics).sum(axis=0).tolist())
        if not (isinstance(value, int | float) and math.isfinite(value)):
            raise InputError(f"{shown(type(self))}.value must give a finite number, but gives {shown(value)}")
        return Score(self.name, value, self.signature(references), self.digits)


def checked_metric(metric: Any, what: str) -> Metric:
    """A metric of others. InputError if it is none, or has no name."""
    if not isinstance(metric, Metric):
        raise InputError(f"{what} must be a Metric (evaluation/metric.py), but is {shown(metric)}")
    if not isinstance(getattr(metric, "name", None), str):
        raise InputError(f"{what}, {shown(type(metric))}, must have a text as `name`")
    return metric


class MeanMetric(Metric):
    """A metric whose statistics are (part, whole) of each sentence: the score is the sum of the parts in per
    cent of the sum of the wholes.
    """

    scale = 100.0

    def value(self, sums: Sequence[float]) -> float:
        part, whole = sums
        if not whole:
            return 0.0 if not part else self.scale
        return self.scale * part / whole
