"""How unlike the text that a model was trained on a source is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_ZERO = ord("a")
MOST_BITS = 25
"""Of a piece: the letters of the alphabet without the first."""
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
    """How many bits the pieces of a source take by their frequency in the training text, per letter: a text
    of another kind is made of rarer pieces, and of more of them.
    """

    pieces: str
    """For each piece of the source vocabulary a letter: a for 0 bits, b for 1, up to z."""
    usual: dict[str, Usual]
    """By source language."""

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "Familiarity":
        """As calibration.json has it."""
        return cls(str(facts["pieces"]), {lang: Usual(**one) for lang, one in facts["usual"].items()})

    def measured(self, pieces: Iterable[Sequence[int]], texts: Iterable[str]) -> tuple[int, int]:
        """(bits, letters) of texts with these pieces."""
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
