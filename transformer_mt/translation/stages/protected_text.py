"""Text that passes through a translation unchanged: placeholders, tags, whatever a pattern matches."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from transformer_mt.errors import InputError, Setting
from transformer_mt.text.languages import foreign_words
from transformer_mt.text.sentences import USUAL, may_match, number_with_unit
from transformer_mt.translation.planner import LONE_CR
from transformer_mt.translation.result import Candidate, Options, merge_candidates
from transformer_mt.translation.stages.call import Call
from transformer_mt.translation.stages.stage import Choice, Numbered, Search, Stage
from transformer_mt.translation.units import Part, SourceLine, TranslatedLine, TranslatedUnit, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment

_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^>]*?(/?)>")


class Protection(Stage):
    """Accepts only candidates that keep the protected text. If none does, the text around it is translated
    separately.
    """

    @classmethod
    def of_call(cls, call: Call) -> "Protection | None":
        usual = call.settings.protect_usual and call.is_natural
        return cls(call.options, usual, call.planner.source_lang) if call.options.protect or usual else None

    def __init__(self, options: Options, usual: bool, language: str = "") -> None:
        """With `usual`, these are protected, too: addresses, placeholders, tags, emoji, numbers with units,
        and words in a script that `language` does not use.
        """
        patterns = options.protect or None
        self._all = ProtectedText(patterns, usual, language) if isinstance(patterns, str) else None
        self._usual = ProtectedText(None, True, language) if usual else None
        self._patterns = None if patterns is None or isinstance(patterns, str) else list(patterns)
        self._by_pattern = {p: ProtectedText(p, usual, language) for p in self._patterns or () if p}

    def _of(self, line: SourceLine) -> "ProtectedText | None":
        if self._patterns is None:
            return self._all or self._usual
        pattern = self._patterns[line.number]
        return self._by_pattern[pattern] if pattern else self._usual

    def divide(self, line: SourceLine) -> None:
        if line.part_of is None and (protected := self._of(line)) is not None:
            line.keep = protected.find

    def _in(self, unit: Unit) -> "ProtectedText | None":
        """The text that the unit's translation must keep; None if the unit has no protected text."""
        if unit.line.part_of is not None or (protected := self._of(unit.line)) is None:
            return None
        return protected if protected.is_in(unit.segment.text) else None

    def adapt(self, unit: Unit) -> Unit:
        return replace(unit, has_conditions=True) if self._in(unit) else unit

    def choose(self, unit: Unit, candidates: Sequence[Candidate]) -> Choice:
        if not unit.has_conditions or (protected := self._in(unit)) is None:
            return Choice(candidates)
        kept = [one for one in candidates if protected.survived(unit.segment.text, one.translation)]
        return Choice(kept, is_enough=bool(kept))

    def search_again(self, units: Sequence[Numbered], search: Search) -> Iterator[Numbered]:
        """Translate the text around the protected spans, for all units in one batch."""
        lines: list[SourceLine] = []
        spans_of: list[tuple[int, Unit, list[Span]]] = []
        for number, refused in units:
            unit = refused.unit
            protected = self._in(unit)
            assert protected is not None  # only units with protected text are refused
            of_unit = protected.spans(unit.segment.text)
            spans_of.append((number, unit, of_unit))
            for span in of_unit:
                if span.translatable:
                    # The prefix belongs to the first span; if that is protected, `_rejoined` prepends it.
                    prefix = unit.prefix_text if span is of_unit[0] else ""
                    lines.append(SourceLine.of(span.text.strip(), len(lines), prefix, part_of=unit))
        translated = search.translate(lines)
        for number, unit, of_unit in spans_of:
            of_spans = [next(translated) if span.translatable else None for span in of_unit]
            yield number, self._rejoined(unit, of_unit, of_spans, search)

    @staticmethod
    def _rejoined(
        unit: Unit, spans: Sequence["Span"], lines: Sequence[TranslatedLine | None], search: Search
    ) -> TranslatedUnit:
        """The unit, put together from its protected spans and the separate translations of the others."""
        of_lines = [search.joined(line) for line in lines if line is not None]
        candidates = []
        for rank in range(min(map(len, of_lines), default=1)):
            chosen = [of_line[rank] for of_line in of_lines]
            text = rejoin(spans, [one.translation for one in chosen])
            if unit.prefix_text and not spans[0].translatable:
                text = f"{unit.prefix_text} {text.lstrip()}"
            candidates.append(replace(merge_candidates(chosen), translation=text))
        flags, problems = [], []
        if of_lines:
            flags.append("protected_split")
            problems.append(
                "protected text was lost in the translation; the text around it was translated separately"
            )
        for part in (part for line in lines if line is not None for part in line.units):
            flags += part.flags
            problems += part.problems
        parts = [Part(span.text, line, span.protected) for span, line in zip(spans, lines)]
        return TranslatedUnit(unit, candidates, flags, problems, parts)

    def align(self, unit: Unit, text: str, translation: str, aligned: "AlignedSegment") -> "AlignedSegment":
        if not unit.has_conditions or (protected := self._in(unit)) is None:
            return aligned
        from transformer_mt.translation.alignment import pinned  # NumPy takes time to import

        source = unit.segment.text
        remaining = protected.find(translation)
        for begin, end in protected.find(source):
            same = next((span for span in remaining if translation[slice(*span)] == source[begin:end]), None)
            if same is not None:
                remaining.remove(same)
                aligned = pinned(aligned, (begin, end), same)
        return aligned


@dataclass(frozen=True)
class Span:
    """Part of a text."""

    text: str
    protected: bool

    @property
    def translatable(self) -> bool:
        """True if the text has words to translate; a comma between two tags has none."""
        return not self.protected and any(map(str.isalpha, self.text))


class ProtectedText:
    """The matches of a regular expression in the source, and whether a translation has kept them."""

    def __init__(self, pattern: str | None, usual: bool = False, language: str = "") -> None:
        """`usual` protects, in addition to `pattern`, what is listed in `Protection`. InputError if `pattern`
        is not a regular expression or matches the empty text.
        """
        self._own = _compiled(pattern) if pattern else None
        self._is_usual = usual
        self._foreign = foreign_words(language) if usual and language else None

    def is_in(self, text: str) -> bool:
        return next(self._matches(text), None) is not None

    def find(self, text: str) -> list[tuple[int, int]]:
        """Positions of the protected text: (begin, end) of each match."""
        return [match.span() for match in self._matches(text)]

    def spans(self, text: str) -> list[Span]:
        """The text in order, cut where protected text begins and ends."""
        merged, start = [], 0
        for match in self._matches(text):
            if match.start() > start:
                merged.append(Span(text[start : match.start()], protected=False))
            merged.append(Span(match.group(), protected=True))
            start = match.end()
        return [*merged, Span(text[start:], protected=False)] if start < len(text) else merged

    def survived(self, source: str, translation: str) -> bool:
        """True if the translation has the protected text of the source, each match the same number of times,
        and with opening tags still before their closing tags. Placeholders may change their order, as
        languages do.
        """
        (wanted, numbers), (present, others) = self._items(source), self._items(translation)
        is_same = Counter(wanted) == Counter(present) and _tag_pairs(wanted) == _tag_pairs(present)
        return is_same and not numbers - others  # more numbers are allowed: "20 percent" may become "20 %"

    def _items(self, text: str) -> tuple[list[str], Counter[str]]:
        """The matches other than numbers with units, and the counts of those numbers."""
        others, numbers = [], Counter[str]()
        for match in self._matches(text):
            if self._is_usual and (number := number_with_unit(match.group())):
                numbers[number] += 1
            else:
                others.append(match.group())
        return others, numbers

    def _matches(self, text: str) -> Iterator[re.Match[str]]:
        """The matches from left to right, without overlaps. If two begin at the same position, the user's
        pattern wins. Patterns are searched separately, because a combined one takes milliseconds to compile.
        """
        given = self._own.finditer(text) if self._own else ()
        usual = USUAL.finditer(text) if self._is_usual and may_match(text) else ()
        foreign = self._foreign.finditer(text) if self._foreign and not text.isascii() else ()
        end = 0
        for match in sorted((*given, *usual, *foreign), key=lambda match: match.start()):  # stable
            if match.group() and match.start() >= end:  # skip empty matches, as of \b
                end = match.end()
                yield match


def rejoin(spans: Sequence[Span], translations: Sequence[str]) -> str:
    """Join the spans: those with words are translated, all others and the spaces stay as they are."""
    text, others = "", iter(translations)
    for span in spans:
        if span.translatable:
            before, _, after = span.text.partition(span.text.strip())
            text += before + next(others) + after
        else:
            text += span.text
    return LONE_CR.sub(" ", text)


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(
            Setting("protect"), f" must be a regular expression, but is {pattern!r}: {error}"
        ) from None
    if compiled.match(""):
        raise InputError(Setting("protect"), f" must not match the empty text, but {pattern!r} does")
    return compiled


def _tag_pairs(items: Sequence[str]) -> Counter[tuple[str, str]]:
    """Counts of (opening tag, closing tag) pairs; a tag without a partner is paired with an empty text.

    `<b>` and `</b>` are a pair; `</b>` before `<b>` are two single tags, so that swapping them changes the
    counts.
    """
    pairs: Counter[tuple[str, str]] = Counter()
    opened: list[tuple[str, str]] = []
    for item in items:
        tag = _TAG.fullmatch(item)
        if tag is None or tag[3]:  # not a tag, or self-closing
            continue
        if not tag[1]:
            opened.append((tag[2], item))
            continue
        partner = next((i for i in reversed(range(len(opened))) if opened[i][0] == tag[2]), None)
        pairs[(opened.pop(partner)[1] if partner is not None else "", item)] += 1
    pairs.update((item, "") for _, item in opened)
    return pairs
