"""Lines as units of work for an engine: each unit is a segment of a line that is searched by itself."""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from transformer_mt.terms.glossary import Match
from transformer_mt.translation.capitals import to_capitals
from transformer_mt.translation.engines.engine import Ids, Request
from transformer_mt.translation.protected_text import ProtectedText, Span, spans_of
from transformer_mt.translation.result import Candidate
from transformer_mt.translation.splitting import Segment


@dataclass(frozen=True)
class Unit:
    """A segment of a line, as it is searched for."""

    segment: Segment
    src: Ids
    """Pieces of the segment, without EOS."""
    limit: int
    """Most pieces of its translation, EOS counted."""
    prefix: Ids = field(default_factory=list)
    prefix_text: str = ""
    prompt: Ids = field(default_factory=list)
    """What the decoder is given before it writes."""
    protected: ProtectedText | None = None
    """None where the segment has no protected text."""
    terms: list[Match] = field(default_factory=list)
    """The terms of a glossary in what is searched for."""

    @property
    def is_fixed(self) -> bool:
        """True if the unit is not searched for: it has nothing to translate, such as a number, an address or
        an emoji, or a memory has its translation.
        """
        return not self.src

    @property
    def is_in_capitals(self) -> bool:
        """Whether it is searched for in lower case, and its translations are written in capitals."""
        return self.segment.lowercased is not None

    def in_capitals(self, translation: str, language: str) -> list[str]:
        """A translation into this language in capitals, apart from protected text; a string per character."""
        return to_capitals(translation, language, spans_of(self.protected, translation))

    @property
    def request(self) -> Request:
        return Request(self.src, self.limit, self.prefix, self.prompt)


@dataclass(frozen=True)
class Line:
    """A line and its units; none where it is blank."""

    source: str
    units: list[Unit]
    before: str = ""
    """White space and bullets that stay before the translation."""
    after: str = ""
    is_too_long: bool = False
    """Whether a sentence of it had to be divided."""

    @property
    def is_fixed(self) -> bool:
        """True if no unit of the line is translated, nor was before."""
        return all(unit.is_fixed and unit.segment.known is None for unit in self.units)


@dataclass(frozen=True)
class TranslatedUnit:
    """What was found for a unit."""

    unit: Unit
    candidates: list[Candidate]
    """Best first, at least one."""
    flags: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    spans: "list[tuple[Span, TranslatedLine | None]]" = field(default_factory=list)
    """If the protected text did not survive: the spans of the unit, and the lines that translate them."""

    def candidate(self, rank: int) -> Candidate:
        """The candidate of this rank; a fixed unit has one candidate for all ranks."""
        return self.candidates[0 if self.unit.is_fixed else rank]

    @property
    def searched(self) -> "Iterator[TranslatedUnit]":
        """What an engine searched: this unit, or the units of its spans."""
        if not (self.spans or self.unit.is_fixed):
            yield self
        for _, line in self.spans:
            for unit in line.units if line else ():
                yield from unit.searched


@dataclass(frozen=True)
class TranslatedLine:
    """A line and what was found for its units."""

    line: Line
    units: list[TranslatedUnit]


class LinesInOrder:
    """Collects translated units in any order; gives back each line as soon as it and those before it are
    translated.
    """

    def __init__(self, lines: Iterable[Line]) -> None:
        self._waiting = deque(lines)
        self._found: dict[int, TranslatedUnit] = {}
        self._first = 0  # the number of the first unit that waits

    def add(self, number: int, unit: TranslatedUnit) -> None:
        """`number` counts the units of all lines."""
        self._found[number] = unit

    def done(self) -> Iterator[TranslatedLine]:
        while self._waiting:
            numbers = range(self._first, self._first + len(self._waiting[0].units))
            if not all(number in self._found for number in numbers):
                return
            self._first = numbers.stop
            yield TranslatedLine(self._waiting.popleft(), [self._found.pop(number) for number in numbers])
