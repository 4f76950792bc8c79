"""The methods of a stage of a translation."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from transformer_mt.config import DecodeConfig
from transformer_mt.translation.engines.engine import Engine, Ids, Request
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.units import Segment, SourceLine, TranslatedLine, TranslatedUnit, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment

TranslateAgain = Callable[[Sequence[int], DecodeConfig], list[Translation]]
"""Translates the lines of these numbers with other settings of the search."""


class Search(Protocol):
    """The search of a call, as stages use it (unit_search.py)."""

    engine: Engine

    def again(
        self, units: Sequence[Unit], requests: Sequence[Request | None]
    ) -> Iterator[tuple[int, TranslatedUnit]]: ...

    def translate(self, lines: Sequence[SourceLine]) -> Iterator[TranslatedLine]: ...

    def joined(self, line: TranslatedLine) -> list[Candidate]: ...

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]: ...

    def ids_of(self, candidate: Candidate) -> Ids: ...


class Stage:
    """A feature of translation. This one changes nothing; each stage overrides what it needs.

    The order of the calls: `check`, for each line `divide`, `divide_further` and `adapt`; the search; for
    each unit `text` and `remarks`, for each with facts `choose` and `wants_more`; where a stage asks for it
    `improve` or `recover`; for each line `finish` and `align`; for all lines `over_lines`. The stages follow
    one another in the order of `build_stages`.
    """

    refuses: ClassVar[bool] = False
    """Whether `choose` may leave no candidate, so that the unit is `recover`ed."""

    def check(self, engine: Engine) -> None:
        """InputError if the engine cannot do what the stage will ask of it."""

    def divide(self, line: SourceLine) -> None:
        """Change the segments of a line, or the texts in them that are searched for."""

    def divide_further(self, line: SourceLine, whole: Segment, part: Segment) -> Segment:
        """A part of a segment that was longer than the model takes."""
        return part

    def adapt(self, unit: Unit) -> Unit:
        """The encoded unit, with another source or limit, or with facts about it for later."""
        return unit

    def text(self, unit: Unit, text: str) -> str:
        """The text of a hypothesis as it is written."""
        return text

    def choose(self, unit: Unit, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates that may be taken, in another order if need be; with none the unit is
        `recover`ed.
        """
        return candidates

    def remarks(self, unit: Unit, best: Candidate) -> Iterator[tuple[str, str]]:
        """(flag, sentence) for each problem of the chosen candidate."""
        return iter(())

    def wants_more(self, translated: TranslatedUnit) -> bool:
        """True if the stage can `improve` the translated unit by another search."""
        return False

    def improve(
        self, units: Sequence[tuple[int, TranslatedUnit]], search: Search
    ) -> Iterable[tuple[int, TranslatedUnit]]:
        """The numbered units, better where a further search finds something better."""
        return units

    def recover(self, units: Sequence[Unit], search: Search) -> list[TranslatedUnit]:
        """Translations of units of which the stage has refused all candidates."""
        raise NotImplementedError

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        """The result of a line of which something was translated."""
        return result

    def align(self, unit: Unit, text: str, translation: str, aligned: "AlignedSegment") -> "AlignedSegment":
        """The alignment of a unit with `text`, the hypothesis, as one with the written `translation`."""
        return aligned

    def over_lines(self, results: Iterator[Translation], again: TranslateAgain) -> Iterator[Translation]:
        """The results of all lines."""
        return results
