"""How good the translation of a whole text probably is, without references."""

from dataclasses import dataclass

from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.confidence import Calibration


@dataclass(frozen=True)
class Expected:
    """The chrF that a text probably has, from 0 to 100."""

    chrf: float
    low: float
    """It is between `low` and `high` with a probability of 95 %."""
    high: float
    sentences: int
    """The number of lines that have a confidence."""

    def __str__(self) -> str:
        return f"expected chrF {self.chrf:.1f} [{self.low:.1f}, {self.high:.1f}]"


_FAR, _OF_FEW_LINES = 0.5, 2.0
"""No estimate for a text whose lines are on average so many standard deviations from the usual ones: the
first for a long text, and the second over the root of the number of lines, as the mean of a few varies.
"""


class ExpectedQuality:
    """Sums over the lines of a text, from which its chrF is estimated: the mean of their confidence, by
    length, as chrF counts it.
    """

    def __init__(self, calibration: Calibration | None) -> None:
        self._calibration = calibration
        self._confidence = self._length = self._squares = self._distance = 0.0
        self._sentences = self._unfamiliar = 0

    def add(self, result: Translation) -> None:
        """Count a line."""
        if result.confidence is not None:
            length = len(result.translation)
            self._confidence += length * result.confidence
            self._length += length
            self._squares += length**2
            self._distance += length * (result.distance or 0.0)
            self._sentences += 1
            self._unfamiliar += "unfamiliar" in result.flags

    @property
    def expected(self) -> Expected | None:
        """None without lines that have a confidence, if the calibration says nothing about texts, and for
        texts unlike those the model was trained on.
        """
        errors = self._calibration and self._calibration.errors
        if not errors or not self._length or self.withheld:
            return None
        chrf = self._confidence / self._length + errors.shift
        # Errors of single lines average out in a long text; the error that all its lines share does not, and
        # may be as large as that of a line where the text is as far from the usual as its lines are.
        unknown = errors.spread * max(0.0, self._distance / self._length)
        variance = errors.drift**2 + errors.spread**2 * self._squares / self._length**2 + unknown**2
        half = 1.96 * variance**0.5
        values = (min(1.0, max(0.0, value)) for value in (chrf, chrf - half, chrf + half))
        chrf, low, high = (round(100 * value, 2) for value in values)
        return Expected(chrf, low, high, self._sentences)

    @property
    def withheld(self) -> str | None:
        """Why there is no estimate of lines that have a confidence; None if there is one."""
        if not self._length or self._calibration is None:
            return None
        if self._calibration.is_saturated:
            return (
                "no chrF is expected: nearly all translations of the validation set are right, so that the "
                "model's confidence says nothing of other texts"
            )
        lines = self._length**2 / self._squares
        if self._distance / self._length <= _FAR + _OF_FEW_LINES / lines**0.5:
            return None
        return (
            f"no chrF is expected: the text is unlike what the model was trained on ({self._unfamiliar:,} of "
            f"{self._sentences:,} lines are unfamiliar)"
        )
