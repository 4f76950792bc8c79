"""How good a translation probably is, by the probabilities that the model gives it and how usual its source
is.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

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

    mean: FiniteFloat
    """The mean over all sources together."""
    deviation: Annotated[FiniteFloat, Field(gt=0)]
    """Root mean square deviation of single sources from the mean."""
    limit: FiniteFloat
    """At most one source in a hundred has more bits per letter. Always above the mean."""


@dataclass(frozen=True)
class Familiarity:
    """How many bits per letter the tokens of a source take, given their frequency in the training text. Texts
    of another kind consist of rarer tokens, and of more of them.
    """

    pieces: Annotated[str, Field(pattern="^[a-z]*$")]
    """One letter for each token of the source vocabulary: a for 0 bits, b for 1, up to z."""
    usual: dict[str, Usual]
    """By source language."""

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


@dataclass(frozen=True)
class TextErrors:
    """Errors of the confidence: the chrF minus the confidence, both from 0 to 1."""

    shift: FiniteFloat
    """Mean error of a text, whose confidence is the mean confidence of its lines."""
    spread: FiniteFloat
    """Standard deviation of the error of a line."""
    drift: FiniteFloat
    """Standard deviation of the error that all lines of a text share, including the error of the fit."""


@dataclass(frozen=True)
class Calibration:
    """The map from probabilities to confidence, fitted on the validation set (evaluation/calibration.py)."""

    intercept: FiniteFloat
    slope: FiniteFloat
    low: FiniteFloat
    """One in twenty translations of the validation set has a lower confidence; at most 0.5."""
    errors: TextErrors | None = None
    is_saturated: bool = False
    """True if nearly all validation translations are right, so confidence says nothing about other texts."""
    familiarity: Familiarity | None = None

    @classmethod
    def load(cls, folder: RunFolder) -> "Calibration | None":
        """The calibration of the model in the folder; None if it has none."""
        try:
            return _facts_of_calibration().validate_python(folder.calibration())
        except ValidationError:
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


@cache
def _facts_of_calibration() -> TypeAdapter[Calibration]:
    """Checks what calibration.json holds, which may come from a stranger."""
    return TypeAdapter(Calibration)
