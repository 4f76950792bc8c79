"""Stages that look at the text alone: sentences, edges of lines, capitals, ends, and flags of problems."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import regex

from transformer_mt.text.languages import base_code, count_unsegmented, to_capitals, to_small_letters
from transformer_mt.text.sentences import (
    ADDRESS,
    OF_PROGRAMS,
    edges,
    has_several_sentences,
    has_words,
    match_end,
)
from transformer_mt.translation.planner import LONE_CR, Splitter
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.call import Call
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine, Spans, TranslatedLine, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment


class SentenceSplitting(Stage):
    """Divides lines into sentences, but not what must pass unchanged."""

    @classmethod
    def of_call(cls, call: Call) -> "SentenceSplitting | None":
        if call.settings.split_sentences is False:
            return None
        return cls(call.planner.splitter, call.planner.target_lang)

    def __init__(self, splitter: Splitter, target_lang: str) -> None:
        self._splitter, self._target_lang = splitter, target_lang

    def divide(self, line: SourceLine) -> None:
        # A prefix of several sentences covers more than the line's first sentence: do not split the line.
        if line.prefix and has_several_sentences(line.prefix, self._target_lang):
            return
        segments = [part for segment in line.segments for part in self._splitter.sentences(segment.text)]
        if len(segments) > 1:
            spans = line.keep("".join(segment.text + segment.gap for segment in segments))
            segments = _without_cuts(segments, spans)
        line.segments = segments


def _without_cuts(segments: Sequence[Segment], spans: Spans) -> list[Segment]:
    """Neighbouring segments joined where a span reaches over the boundary between them."""
    joined: list[Segment] = []
    start = 0
    for segment in segments:
        borders = {start - len(joined[-1].gap), start} if joined else ()
        start += len(segment.text + segment.gap)
        # The spans are sorted: only the last one that begins before a border can cross it.
        last = [bisect_left(spans, (border, 0)) - 1 for border in borders]
        if any(i >= 0 and spans[i][1] > border for i, border in zip(last, borders)):
            before = joined.pop()
            segment = Segment(before.text + before.gap + segment.text, segment.gap)
        joined.append(segment)
    return joined


class Edges(Stage):
    """Takes bullets and white space off the ends of a line. A line with a prefix is left as it is: its
    translation begins with the prefix.
    """

    @classmethod
    def of_call(cls, call: Call) -> "Edges | None":
        return cls(call.planner.source_lang) if call.is_natural else None

    def __init__(self, source_lang: str) -> None:
        self._source_lang = source_lang

    def divide(self, line: SourceLine) -> None:
        if line.prefix:
            return
        before, words, after = edges(line.source, self._source_lang)
        line.before, line.after = LONE_CR.sub(" ", before), LONE_CR.sub(" ", after)
        line.segments = [Segment(words, "")] if words else []


class Unchanged(Stage):
    """Keeps segments that have nothing to translate, except in a line with a prefix, whose translation must
    contain the prefix.
    """

    @classmethod
    def of_call(cls, call: Call) -> "Unchanged | None":
        return cls() if call.is_natural else None

    def divide(self, line: SourceLine) -> None:
        for i, segment in enumerate(line.segments if not line.prefix else ()):
            if segment.known is None and not has_words(segment.text, line.keep):
                line.segments[i] = replace(segment, known=segment.text)


WORD = regex.compile(r"\p{L}+")
# Fewer and shorter words may be acronyms, as in "EU, NATO".
MIN_WORDS, MIN_LETTERS = 3, 5


class Capitals(Stage):
    """Searches for lines and sentences in lower case if they are in capitals, and puts their translations in
    capitals. A line with a prefix stays as it is.
    """

    @classmethod
    def of_call(cls, call: Call) -> "Capitals | None":
        # Not within one language: there the task may be to change capitals.
        is_wanted = call.settings.lowercase_capitals and call.is_natural and len(set(call.direction)) == 2
        return cls(*call.direction) if is_wanted else None

    def __init__(self, source_lang: str, target_lang: str) -> None:
        self._source_lang, self._target_lang = source_lang, target_lang

    def divide(self, line: SourceLine) -> None:
        if line.prefix:
            return
        text = "".join(segment.text + segment.gap for segment in line.segments)
        is_whole = bool(line.part_of and _is_lowercased(line.part_of))
        is_whole = is_whole or is_in_capitals(text, line.keep(text))
        line.segments = [
            self._lowercased(segment, line.keep(segment.text))
            if is_whole or is_in_capitals(segment.text, line.keep(segment.text))
            else segment
            for segment in line.segments
        ]

    def _lowercased(self, segment: Segment, keep: Spans) -> Segment:
        return replace(segment, replacement=to_sentence_case(segment.text, self._source_lang, keep))

    def text(self, unit: Unit, text: str) -> str:
        return "".join(self._capitals(unit, text)) if _is_lowercased(unit) else text

    def align(self, unit: Unit, text: str, translation: str, aligned: "AlignedSegment") -> "AlignedSegment":
        if not _is_lowercased(unit):
            return aligned
        # Convert positions to those in the translation in capitals, which may be longer: ß becomes SS.
        starts = [0, *accumulate(map(len, self._capitals(unit, text)))]
        return replace(aligned, target=[(starts[begin], starts[end]) for begin, end in aligned.target])

    def _capitals(self, unit: Unit, text: str) -> list[str]:
        """A hypothesis in capitals, apart from what passes unchanged; a string per character."""
        keep = unit.line.keep(text) if unit.line.keep(unit.segment.text) else []
        return capitals_of(text, self._target_lang, keep)


def _is_lowercased(unit: Unit) -> bool:
    return unit.segment.replacement is not None


def is_in_capitals(text: str, keep: Iterable[tuple[int, int]] = ()) -> bool:
    """True if all letters are capitals and there are at least three words, or a word of at least five
    letters. The (begin, end) spans in `keep` do not count.
    """
    for begin, end in keep:
        text = text[:begin] + " " * (end - begin) + text[end:]
    if not text.isupper():  # fast path for nearly every text
        return False
    words = WORD.findall(text)
    is_long = len(words) >= MIN_WORDS or any(len(word) >= MIN_LETTERS for word in words)
    return is_long and all(letter.isupper() for word in words for letter in word)


def to_sentence_case(text: str, language: str, keep: Iterable[tuple[int, int]] = ()) -> str:
    """Put a text in capitals into lower case, except for its first letter and, in English, the word I. Its
    length does not change; the spans in `keep` stay as they are.
    """
    lower = to_small_letters(text, language)
    capitals = re.compile(r"\bi\b").finditer(lower) if base_code(language) == "en" else ()
    kept = [*keep, *(match.span() for match in capitals)]
    if first := WORD.search(text):
        kept.append((first.start(), first.start() + 1))
    letters = list(lower)
    for begin, end in kept:
        letters[begin:end] = text[begin:end]
    return "".join(letters)


def capitals_of(text: str, language: str, keep: Iterable[tuple[int, int]] = ()) -> list[str]:
    """The text in capitals, in one string per character. The spans in `keep` stay as they are."""
    kept = {position for span in keep for position in range(*span)}
    capitals = to_capitals(text, language)
    return [text[n] if n in kept else capital for n, capital in enumerate(capitals)]


class MatchingEnds(Stage):
    """Changes the ends of translations."""

    @classmethod
    def of_call(cls, call: Call) -> "MatchingEnds | None":
        return cls(call.planner.target_lang) if call.settings.match_ends else None

    def __init__(self, target_lang: str) -> None:
        self._target_lang = target_lang

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        texts = [match_end(result.source, one.translation, self._target_lang) for one in result.n_best]
        candidates = [replace(one, translation=text) for one, text in zip(result.n_best, texts)]
        return replace(result, translation=candidates[0].translation, n_best=candidates)


_ADDRESS = re.compile(ADDRESS)
# 1,250 and 1.250 and 1 250: the separator between groups of three digits differs between languages.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?!\d)")
_NUMBER = re.compile(r"\d+")


class Flags(Stage):
    """Flags results."""

    @classmethod
    def of_call(cls, call: Call) -> "Flags | None":
        return cls() if call.is_natural else None

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        src_pieces = sum(len(unit.unit.src) for unit in line.units)
        suspicious = list(text_flags(result.source, result.translation, src_pieces, result.tokens))
        if "no_hypothesis" in result.flags or any(unit.parts or unit.unit.is_fixed for unit in line.units):
            # Such a translation has text without tokens, or is empty, so the ratio means nothing.
            suspicious = [flag for flag in suspicious if flag != "length_ratio"]
        return replace(result, flags=list(dict.fromkeys([*result.flags, *suspicious])))


def text_flags(source: str, translation: str, src_pieces: int, tokens: Sequence[str]) -> Iterator[str]:
    """Yield the flags that apply, out of `copied`, `repeating`, `length_ratio`, `missing_number` and
    `missing_url`.
    """
    if translation.strip() == source.strip() and _num_words(source) > 1 and any(map(str.isalpha, source)):
        yield "copied"  # not flagged for one word: it may be a name
    if _repeats(tokens):
        yield "repeating"
    longer, shorter = max(src_pieces, len(tokens)), min(src_pieces, len(tokens))
    if longer > 3 * shorter + 5:
        yield "length_ratio"
    # Most sources have no numbers or addresses; then the translation need not be searched.
    if (numbers := _numbers(source)) and numbers - _numbers(translation):
        yield "missing_number"
    if (urls := _urls(source)) and urls - _urls(translation):
        yield "missing_url"


def _num_words(text: str) -> int:
    return len(text.split()) + count_unsegmented(text) // 3


def _numbers(text: str) -> Counter[str]:
    """The numbers of a text. A decimal counts as two: 3.5 may be translated as 3,5, and 10:30 as 10.30."""
    if not _NUMBER.search(text):
        return Counter()
    plain = OF_PROGRAMS.sub(" ", text)
    whole = _GROUPED.sub(lambda grouped: "".join(_NUMBER.findall(grouped.group())), plain)
    return Counter(_NUMBER.findall(whole))


def _urls(text: str) -> Counter[str]:
    return Counter(_ADDRESS.findall(text) if any(mark in text for mark in (":", "www.", "@")) else ())


def _repeats(tokens: Sequence[str]) -> bool:
    """True if a group of one to four tokens comes four times in a row; marks such as ... do not count."""
    if len(tokens) - len(set(tokens)) < 3 or max(Counter(tokens).values()) < 4:
        return False
    for n in range(1, 5):
        for start in range(len(tokens) - 4 * n + 1):
            first = tokens[start : start + n]
            again = all(tokens[start + k * n : start + (k + 1) * n] == first for k in range(1, 4))
            if again and any(c.isalnum() for piece in first for c in piece):
                return True
    return False


class Confidence(Stage):
    """Gives each result its confidence, and marks those whose source is unlike the training text."""

    @classmethod
    def of_call(cls, call: Call) -> "Confidence | None":
        calibration = call.resources.calibration
        return None if calibration is None else cls(calibration, call.planner.source_lang)

    def __init__(self, calibration: Calibration, source_lang: str) -> None:
        self._calibration, self._source_lang = calibration, source_lang

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        if not result.tokens:
            return result
        confidence = self._calibration.confidence(result.log_prob, result.num_pieces)
        flags, distance = [], self._distance(line)
        if distance is not None and distance > (limit := self._limit):
            flags.append("unfamiliar")
            # Nothing is known about such texts, so reduce the confidence: by half at twice the limit.
            confidence *= limit / distance
        if confidence < self._calibration.low:
            flags.append("low_confidence")
        confidence = round(confidence, 4)
        return replace(result, confidence=confidence, distance=distance, flags=[*result.flags, *flags])

    def _distance(self, line: TranslatedLine) -> float | None:
        if (familiarity := self._calibration.familiarity) is None:
            return None
        units = [searched.unit for unit in line.units for searched in unit.searched]
        measured = familiarity.measured((u.src for u in units), (u.segment.searched for u in units))
        distance = familiarity.distance(self._source_lang, *measured)
        return None if distance is None else round(distance, 2)

    @property
    def _limit(self) -> float:
        assert self._calibration.familiarity is not None
        return self._calibration.familiarity.limit(self._source_lang)
