"""The methods of a stage of a translation."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from transformer_mt.companion import shown
from transformer_mt.errors import InputError
from transformer_mt.translation.engines.engine import Engine, Ids, Request
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.units import SourceLine, TranslatedLine, TranslatedUnit, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment

T = TypeVar("T")

Numbered = tuple[int, TranslatedUnit]
"""The number of a unit in its call, and the unit."""


class Search(Protocol):
    """The search of a call, as stages use it (translator.py)."""

    engine: Engine

    def again(self, units: Sequence[Unit], requests: Sequence[Request | None]) -> Iterator[Numbered]: ...

    def translate(self, lines: Sequence[SourceLine]) -> Iterator[TranslatedLine]: ...

    def joined(self, line: TranslatedLine) -> list[Candidate]: ...

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]: ...

    def ids_of(self, candidate: Candidate) -> Ids: ...


@dataclass(frozen=True)
class Choice:
    """The candidates of a unit that a stage leaves."""

    candidates: Sequence[Candidate]
    """In the order in which they are preferred."""
    is_enough: bool = True
    """False if the stage wants to search for the unit again. Must be False if no candidate is left."""


class Stage:
    """A feature of translation. This one changes nothing; each stage overrides what it needs.

    Before the search, `divide` is called for each line and `adapt` for each unit. After it come `text` for
    each hypothesis, `choose` for each unit, `search_again` for the units that need it, `finish` for each
    line, and `align` if alignments were requested. The stages run in the order of `parts.py`. Each of ours
    has a classmethod `of_call(call)`, which returns None if the stage has nothing to do (call.py).
    """

    def divide(self, line: SourceLine) -> None:
        """Change the segments of a line, or the texts that are searched in their place."""

    def adapt(self, unit: Unit) -> Unit:
        """Change the encoded unit: its source, its limit, or whether its translation must meet conditions."""
        return unit

    def text(self, unit: Unit, text: str) -> str:
        """The text of a hypothesis in the form in which it is output."""
        return text

    def choose(self, unit: Unit, candidates: Sequence[Candidate]) -> Choice:
        """The candidates that may be taken."""
        return Choice(candidates)

    def search_again(self, units: Sequence[Numbered], search: Search) -> Iterable[Numbered]:
        """New results for all units for which this stage was the first to ask for another search."""
        raise NotImplementedError

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        """Change the result of a line. Not called if nothing in the line was translated."""
        return result

    def align(self, unit: Unit, text: str, translation: str, aligned: "AlignedSegment") -> "AlignedSegment":
        """Convert the alignment of a unit with the hypothesis `text` to one with the final `translation`."""
        return aligned


class BroughtStage(Stage):
    """A stage that a companion brings. Its results are checked, because a wrong one would only fail later."""

    def __init__(self, stage: Any, name: str) -> None:
        """InputError if `stage` is not a Stage."""
        self._stage, self._name = self._of_kind(stage, Stage, f"the stage {name}"), name

    def divide(self, line: SourceLine) -> None:
        self._stage.divide(line)

    def adapt(self, unit: Unit) -> Unit:
        return self._result(self._stage.adapt(unit), Unit, "adapt")

    def text(self, unit: Unit, text: str) -> str:
        return self._one_line(self._result(self._stage.text(unit, text), str, "text"), "text")

    def choose(self, unit: Unit, candidates: Sequence[Candidate]) -> Choice:
        return self._result(self._stage.choose(unit, candidates), Choice, "choose")

    def search_again(self, units: Sequence[Numbered], search: Search) -> Iterable[Numbered]:
        return self._stage.search_again(units, search)

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        finished = self._result(self._stage.finish(line, result), Translation, "finish")
        self._one_line(finished.translation, "finish")
        return finished

    def align(self, unit: Unit, text: str, translation: str, aligned: "AlignedSegment") -> "AlignedSegment":
        return self._result(self._stage.align(unit, text, translation, aligned), type(aligned), "align")

    def _result(self, value: Any, kind: type[T], method: str) -> T:
        return self._of_kind(value, kind, f"the stage {self._name}, {shown(type(self._stage))}.{method},")

    @staticmethod
    def _of_kind(value: Any, kind: type[T], what: str) -> T:
        if not isinstance(value, kind):
            raise InputError(f"{what} must give a {kind.__name__}, but gives {shown(value)}")
        return value

    def _one_line(self, text: Any, method: str) -> Any:
        if not isinstance(text, str) or "\n" in text:
            raise InputError(
                f"the stage {self._name}, {shown(type(self._stage))}.{method}, must give a text of one line, "
                f"but gives {str(text)[:80]!r}"
            )
        return text
