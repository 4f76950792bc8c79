"""How good the translation of a whole text probably is, without references."""

from dataclasses import dataclass

from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.confidence import Calibration


@dataclass(frozen=True)
class Expected:
    """The chrF that a text probably has, from 0 to 100."""

    chrf: float
    low: float
    """It is between `low` and `high` with a probability of 95 %, if the text is like the validation set."""
    high: float
    sentences: int
    """The number of lines that have a confidence."""

    def __str__(self) -> str:
        return f"expected chrF {self.chrf:.1f} [{self.low:.1f}, {self.high:.1f}]"


class ExpectedQuality:
    """Sums over the lines of a text, from which its chrF is estimated: the mean of their confidence, by
    length, as chrF counts it.
    """

    def __init__(self, calibration: Calibration | None) -> None:
        self._calibration = calibration
        self._confidence = self._length = self._squares = 0.0
        self._sentences = 0

    def add(self, result: Translation) -> None:
        """Count a line."""
        if result.confidence is not None:
            length = len(result.translation)
            self._confidence += length * result.confidence
            self._length += length
            self._squares += length**2
            self._sentences += 1

    @property
    def expected(self) -> Expected | None:
        """None without lines that have a confidence, or if the calibration says nothing about texts."""
        errors = self._calibration and self._calibration.errors
        if not errors or not self._length:
            return None
        chrf = self._confidence / self._length + errors.shift
        # Errors of single lines average out in a long text; the error that all its lines share does not.
        variance = errors.drift**2 + errors.spread**2 * self._squares / self._length**2
        half = 1.96 * variance**0.5
        values = (min(1.0, max(0.0, value)) for value in (chrf, chrf - half, chrf + half))
        chrf, low, high = (round(100 * value, 2) for value in values)
        return Expected(chrf, low, high, self._sentences)
