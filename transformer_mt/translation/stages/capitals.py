"""Text in capitals. Models hardly know it: it is translated in lower case, and its translation is written in
capitals.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

import regex

from transformer_mt.text.languages import base_code
from transformer_mt.text.letter_case import to_capitals, to_small_letters
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine, Spans, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment

WORD = regex.compile(r"\p{L}+")
# Fewer and shorter words may be acronyms, as in "EU, NATO".
MIN_WORDS, MIN_LETTERS = 3, 5


class Capitals(Stage):
    """Searches in lower case for lines and sentences in capitals. A line with a prefix stays as it is."""

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
    """True if all letters are capitals, in three words or in a word of five letters at least. The (begin,
    end) spans in `keep` do not count.
    """
    for begin, end in keep:
        text = text[:begin] + " " * (end - begin) + text[end:]
    if not text.isupper():  # fast path for nearly every text
        return False
    words = WORD.findall(text)
    is_long = len(words) >= MIN_WORDS or any(len(word) >= MIN_LETTERS for word in words)
    return is_long and all(letter.isupper() for word in words for letter in word)


def to_sentence_case(text: str, language: str, keep: Iterable[tuple[int, int]] = ()) -> str:
    """A text in capitals with only its first letter as a capital, and in English the word I. It has the same
    length; the spans in `keep` stay as they are.
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
