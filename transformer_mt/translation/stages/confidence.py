"""How good a translation probably is, by the probabilities that the model gives it and how usual its source
is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from transformer_mt.run_folder import RunFolder

_ZERO = ord("a")
MOST_BITS = 25
"""The most bits that a token can have: they are stored as the letters a (0) to z (25)."""
_BEFORE = 10


def bits_per_letter(bits: float, letters: float, mean: float) -> float:
    """Bits per letter, as if ten more letters with the mean number of bits came first. Without them the
    values of short texts vary widely.
    """
    return (bits + _BEFORE * mean) / (letters + _BEFORE)


@dataclass(frozen=True)
class Usual:
    """The bits per letter of the validation sources in one language."""

    mean: float
    """The mean over all sources together."""
    deviation: float
    """Root mean square deviation of single sources from the mean."""
    limit: float
    """At most one source in a hundred has more bits per letter. Always above the mean."""


@dataclass(frozen=True)
class Familiarity:
    """How many bits per letter the tokens of a source take, given their frequency in the training text. Texts
    of another kind consist of rarer tokens, and of more of them.
    """

    pieces: str
    """One letter for each token of the source vocabulary: a for 0 bits, b for 1, up to z."""
    usual: dict[str, Usual]
    """By source language."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Familiarity":
        """Build it from its entry in calibration.json."""
        return cls(str(facts["pieces"]), {lang: Usual(**one) for lang, one in facts["usual"].items()})

    def measured(self, pieces: Iterable[Sequence[int]], texts: Iterable[str]) -> tuple[int, int]:
        """(bits, letters) of texts with these tokens."""
        bits = sum(ord(self.pieces[i]) - _ZERO for ids in pieces for i in ids)
        return bits, sum(map(str.isalpha, "".join(texts)))

    def distance(self, source_lang: str, bits: int, letters: int) -> float | None:
        """The distance from the usual bits per letter, in standard deviations. None if the texts have no
        letters, or if nothing is known about this language.
        """
        if not letters or (usual := self.usual.get(source_lang)) is None:
            return None
        return (bits_per_letter(bits, letters, usual.mean) - usual.mean) / usual.deviation

    def limit(self, source_lang: str) -> float:
        """The distance beyond which a source is unfamiliar."""
        usual = self.usual[source_lang]
        return (usual.limit - usual.mean) / usual.deviation


_OF_TEXTS = ("shift", "spread", "drift")


@dataclass(frozen=True)
class TextErrors:
    """Errors of the confidence: the chrF minus the confidence, both from 0 to 1."""

    shift: float
    """Mean error of a text, whose confidence is the mean confidence of its lines."""
    spread: float
    """Standard deviation of the error of a line."""
    drift: float
    """Standard deviation of the error that all lines of a text share, including the error of the fit."""


@dataclass(frozen=True)
class Calibration:
    """The map from probabilities to confidence, fitted on the validation set (evaluation/calibration.py)."""

    intercept: float
    slope: float
    low: float
    """One in twenty translations of the validation set has a lower confidence; at most 0.5."""
    errors: TextErrors | None = None
    is_saturated: bool = False
    """True if nearly all validation translations are right, so confidence says nothing about other texts."""
    familiarity: Familiarity | None = None

    @classmethod
    def load(cls, folder: RunFolder) -> "Calibration | None":
        """The calibration of the model in the folder; None if it has none."""
        try:
            facts = folder.calibration()
            errors = facts.get("errors")
            of_texts = TextErrors(*(float(errors[key]) for key in _OF_TEXTS)) if errors else None
            intercept, slope, low = (float(facts[key]) for key in ("intercept", "slope", "low"))
            familiarity = Familiarity.of(known) if (known := facts.get("familiarity")) else None
            is_saturated = bool(facts.get("is_saturated"))
            return cls(intercept, slope, low, of_texts, is_saturated, familiarity)
        except (ValueError, KeyError, TypeError):
            return None

    def fits(self, num_pieces: int) -> bool:
        """False if the file was copied from a run with another source vocabulary than `num_pieces`."""
        return self.familiarity is None or len(self.familiarity.pieces) == num_pieces

    def confidence(self, log_prob: float, pieces: int) -> float:
        """The chrF that translations of this probability have, from 0 to 1 (Platt 1999): sigmoid of a linear
        function of the mean log-probability of the `pieces`, end-of-sentence counted.
        """
        x = self.intercept + self.slope * log_prob / max(1, pieces)
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, x))))
