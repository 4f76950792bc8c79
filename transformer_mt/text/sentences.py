"""Sentences of a text: where they end, their final marks, their words."""

import re
from collections.abc import Iterator

import regex
import sentencex

from transformer_mt.text.languages import UNSEGMENTED, base_code

Span = tuple[int, int]
"""(begin, end) of characters."""

# A number, one character of a script without spaces, a word, or a punctuation mark.
_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--{UNSEGMENTED}]"
_WORDS = regex.compile(
    rf"\p{{N}}+(?:[.,:]\p{{N}}+)*|{UNSEGMENTED}\p{{M}}*|{_LETTER}+(?:['’-]{_LETTER}+)*|[^\s]", regex.VERSION1
)


def find_words(text: str) -> list[Span]:
    """The words, numbers and punctuation marks of a text; in a script without spaces, its characters."""
    return [match.span() for match in _WORDS.finditer(text)]


_CLOSING = r"[\p{Pe}\p{Pf}\p{Pi}\"'\s]*$"
# Unicode's Sentence_Terminal, the ellipses, Tibetan's stroke and Greek's question mark.
_MARKS = r"\p{Sentence_Terminal}…‥།༎\u037e"
FINAL_MARK = f"[{_MARKS}]"
# Each run of marks is tried once, from its beginning: the time grows with the length alone.
_END, _GREEK_END = (
    regex.compile(rf"(?<![{marks}])([{marks}]++){_CLOSING}") for marks in (_MARKS, _MARKS + ";")
)


def end_pattern(language: str) -> "regex.Pattern[str]":
    """Pattern of the marks at the end of a text, its first group, with what closes after them."""
    return _GREEK_END if base_code(language) == "el" else _END


def final_mark(text: str, language: str = "") -> tuple[int, int] | None:
    """The span of the marks at the end of the text, before closing quotes and brackets; None without one. In
    Greek a semicolon asks.
    """
    match = end_pattern(language).search(text)
    return None if match is None else match.span(1)


_BULLET = r"(?:[-*+•‣⁃◦▪▫●○■□–—·»›>]+|\(?(?:\d{1,3}|[A-Za-z])\))\s+"
_NUMBER = r"\d{1,3}\.\s+"
_BEFORE = re.compile(rf"\s*(?:{_BULLET})*")
_BEFORE_WITH_NUMBERS = re.compile(rf"\s*(?:{_BULLET}|{_NUMBER})*")
# In these a number with a full stop is an ordinal: "3. Oktober".
_HAVE_ORDINALS = frozenset({
    "de", "da", "nb", "nn", "no", "is", "fi", "et", "hu", "cs", "sk", "pl", "sl", "hr", "sr", "bs", "lv",
    "lt", "tr", "eu",
})  # fmt: skip
OWN_STOPS = {"zh": "。！？", "ja": "。！？"}
"""The final marks of languages that do not write . ! ?"""


def before_words(language: str) -> re.Pattern[str]:
    """Pattern of what may stand before the words of a line: white space and bullets."""
    return _BEFORE if base_code(language) in _HAVE_ORDINALS else _BEFORE_WITH_NUMBERS


def edges(line: str, language: str) -> tuple[str, str, str]:
    """The line in three parts: white space and bullets ("- ", "3) ") before its words, the words, white space
    after them.
    """
    match = before_words(language).match(line)
    start = match.end() if match else 0
    if not line[start:].strip():  # nothing but bullets
        start = len(line) - len(line.lstrip())
    words = line[start:].rstrip()
    return line[:start], words, line[start + len(words) :]


def match_end(source: str, translation: str, language: str) -> str:
    """The translation with a final stop if the source has one, and without if it has none."""
    end, wanted = final_mark(translation, language), final_mark(source)
    if not translation.strip() or bool(end) == bool(wanted):
        return translation
    if end:
        return translation[: end[0]] + translation[end[1] :]
    assert wanted is not None
    stop, words = source[slice(*wanted)], translation.rstrip()
    own_stops = OWN_STOPS.get(base_code(language))
    if own_stops and stop[0] in ".!?":
        stop = own_stops[".!?".index(stop[0])]
    elif stop[0] in "。！？" and not own_stops:
        stop = ".!?"["。！？".index(stop[0])]
    return words + stop + translation[len(words) :]


# sentencex takes the square of the number of quotation marks in a text. Longer texts are segmented in blocks,
# which end where a sentence may.
_BLOCK = 2000
_MAY_END = regex.compile(rf"[.!?…]\s|(?![.!?…]){FINAL_MARK}|\n")


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, each with the white space after it: joined, they are the text.

    A sentence has a letter: what has none, such as the number of a list ("1. "), belongs to the sentence
    after it, or to the one before it at the end of the text.
    """
    language = base_code(lang)
    sentences: list[str] = []
    incomplete: list[str] = []
    has_letter = False
    for block, is_end in _blocks(text):
        segments = sentencex.segment(language, block)
        for number, segment in enumerate(segments, start=1):
            incomplete.append(segment)
            has_letter = has_letter or any(map(str.isalpha, segment))
            if has_letter and (is_end or number < len(segments)):
                sentences.append("".join(incomplete))
                incomplete, has_letter = [], False
    if incomplete:
        sentences[-1:] = ["".join([*sentences[-1:], *incomplete])]
    return sentences


def has_several_sentences(text: str, lang: str) -> bool:
    return len(split_sentences(text, lang)) > 1


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """The text in blocks, each with True if a sentence may end at its end."""
    start = 0
    while len(text) - start > _BLOCK:
        end = _MAY_END.search(text, start + _BLOCK // 2, start + _BLOCK)
        stop = end.end() if end else start + _BLOCK
        yield text[start:stop], end is not None
        start = stop
    yield text[start:], True
