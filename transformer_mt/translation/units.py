"""Lines as units of work for an engine: each unit is a segment of a line that is searched by itself."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from transformer_mt.errors import WorkError
from transformer_mt.translation.engines.engine import Ids, Request
from transformer_mt.translation.result import Candidate

Spans = list[tuple[int, int]]
"""(begin, end) characters of parts of a text, in order."""


def _keep_nothing(text: str) -> Spans:
    return []


@dataclass(frozen=True)
class Segment:
    """A part of a line."""

    text: str
    """Without the white space around it."""
    gap: str
    """The white space between it and the next segment of the line."""
    replacement: str | None = None
    """The text that is searched instead of `text`; it has the same length."""
    known: str | None = None
    """The translation, if it is known without a search."""
    flag: str | None = None
    """The flag for a known translation; None if that is just a copy of the text."""

    @property
    def searched(self) -> str:
        """The text that the search translates."""
        return self.text if self.replacement is None else self.replacement


@dataclass(slots=True)
class SourceLine:
    """A line to translate. One stage after the other divides it into segments; then it gets their units."""

    source: str
    segments: list[Segment]
    number: int = 0
    """Its index among the lines of the call."""
    prefix: str = ""
    """The beginning of its translation."""
    before: str = ""
    """White space and bullets that stay before the translation."""
    after: str = ""
    keep: Callable[[str], Spans] = _keep_nothing
    """Finds the spans of a text that must pass unchanged."""
    part_of: "Unit | None" = None
    """The unit that the line is a part of, if that unit could not be translated as a whole."""
    units: "list[Unit]" = field(default_factory=list)
    """Empty if the line is blank."""
    is_too_long: bool = False
    """Whether a segment of it had to be divided."""

    @property
    def is_fixed(self) -> bool:
        """True if all units stay as they are."""
        return all(unit.is_fixed and unit.segment.flag is None for unit in self.units)

    @classmethod
    def of(
        cls, source: str, number: int = 0, prefix: str = "", part_of: "Unit | None" = None
    ) -> "SourceLine":
        """The line as one segment, or without segments if it is blank."""
        text = source.strip()
        return cls(source, [Segment(text, "")] if text else [], number, prefix, part_of=part_of)


@dataclass(frozen=True)
class Unit:
    """A segment of a line, as it is searched for."""

    segment: Segment
    src: Ids
    """Tokens of the segment, without EOS."""
    limit: int
    """Most tokens of its translation, EOS counted."""
    prefix: Ids = field(default_factory=list)
    prefix_text: str = ""
    prompt: Ids = field(default_factory=list)
    """The tokens that the decoder is given before it writes."""
    line: SourceLine = field(default_factory=lambda: SourceLine.of(""))
    has_conditions: bool = False
    """True if a stage may refuse candidates that lack something, so several are searched for."""
    positions: list[Ids] | None = None
    """For each token of the text, the positions in `src` that represent it. None if the tokens of the text
    are simply the last ones of `src`, in order.
    """

    @property
    def is_fixed(self) -> bool:
        """True if the unit is not searched for: it has nothing to translate, such as a number, an address or
        an emoji, or its translation is known.
        """
        return not self.src

    @property
    def request(self) -> Request:
        return Request(self.src, self.limit, self.prefix, len(self.prefix), self.prompt)


@dataclass(frozen=True)
class Part:
    """A part of a unit that was translated in parts."""

    text: str
    line: "TranslatedLine | None" = None
    """Its translation; None where it stays as it is."""
    is_whole: bool = False
    """True if the part is aligned as a whole, not word by word."""


@dataclass(frozen=True)
class TranslatedUnit:
    """A unit with its candidates."""

    unit: Unit
    candidates: list[Candidate]
    """Best first; empty only until a stage has searched again."""
    flags: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    """Empty unless the unit was translated in parts."""

    def candidate(self, rank: int) -> Candidate:
        """The candidate of this rank; a fixed unit has one candidate for all ranks."""
        return self.candidates[0 if self.unit.is_fixed else rank]

    @property
    def searched(self) -> "Iterator[TranslatedUnit]":
        """The units that an engine searched: this unit, or the units of its parts."""
        if not (self.parts or self.unit.is_fixed):
            yield self
        for part in self.parts:
            for unit in part.line.units if part.line else ():
                yield from unit.searched


@dataclass(frozen=True)
class TranslatedLine:
    """A line and its translated units."""

    line: SourceLine
    units: list[TranslatedUnit]


class LinesInOrder:
    """Collects translated units in any order; gives back each line as soon as it and those before it are
    translated.
    """

    def __init__(self, lines: Iterable[SourceLine]) -> None:
        self._waiting = deque(lines)
        self._units: dict[int, TranslatedUnit] = {}
        self._first = 0  # number of the first waiting unit

    def add(self, number: int, unit: TranslatedUnit) -> None:
        """`number` counts the units of all lines."""
        self._units[number] = unit

    def check_all_done(self) -> None:
        """WorkError if a line still waits for a unit that will never be translated; otherwise it and the
        lines after it would be lost silently.
        """
        if self._waiting:
            raise WorkError(
                f"an engine or a stage gave no result for some units, so {len(self._waiting):,} lines have "
                f"no translation; the first is {self._waiting[0].source[:80]!r}"
            )

    def done(self) -> Iterator[TranslatedLine]:
        while self._waiting:
            numbers = range(self._first, self._first + len(self._waiting[0].units))
            if not all(number in self._units for number in numbers):
                return
            self._first = numbers.stop
            yield TranslatedLine(self._waiting.popleft(), [self._units.pop(number) for number in numbers])
