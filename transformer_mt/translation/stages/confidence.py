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
"""Of a token: the letters of the alphabet without the first."""
_BEFORE = 10


def bits_per_letter(bits: float, letters: float, mean: float) -> float:
    """The bits per letter as if ten letters with the mean stood before: those of a short text vary widely."""
    return (bits + _BEFORE * mean) / (letters + _BEFORE)


@dataclass(frozen=True)
class Usual:
    """The bits per letter of the validation sources in one language."""

    mean: float
    """Of all their letters."""
    deviation: float
    """Of the single sources from it: the root of the mean square."""
    limit: float
    """One in a hundred sources has more. It is above the mean."""


@dataclass(frozen=True)
class Familiarity:
    """How many bits the tokens of a source take by their frequency in the training text, per letter: a text
    of another kind is made of rarer tokens, and of more of them.
    """

    pieces: str
    """For each token of the source vocabulary a letter: a for 0 bits, b for 1, up to z."""
    usual: dict[str, Usual]
    """By source language."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Familiarity":
        """As calibration.json has it."""
        return cls(str(facts["pieces"]), {lang: Usual(**one) for lang, one in facts["usual"].items()})

    def measured(self, pieces: Iterable[Sequence[int]], texts: Iterable[str]) -> tuple[int, int]:
        """(bits, letters) of texts with these tokens."""
        bits = sum(ord(self.pieces[i]) - _ZERO for ids in pieces for i in ids)
        return bits, sum(map(str.isalpha, "".join(texts)))

    def distance(self, source_lang: str, bits: int, letters: int) -> float | None:
        """From the usual number of bits per letter, in standard deviations; None where nothing is usual, and
        without letters.
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
    """The distance of the chrF of texts from the mean confidence of their lines, 0 to 1."""

    shift: float
    """Its mean."""
    spread: float
    """Standard deviation of the error of a line."""
    drift: float
    """Standard deviation of the error that the lines of a text share, with that of the fit."""


@dataclass(frozen=True)
class Calibration:
    """The map from probabilities to confidence, fitted on the validation set (evaluation/calibration.py)."""

    intercept: float
    slope: float
    low: float
    """One in twenty translations of the validation set has a lower confidence; at most 0.5."""
    errors: TextErrors | None = None
    is_saturated: bool = False
    """True if nearly all translations of the validation set are right, so that it says nothing of others."""
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
