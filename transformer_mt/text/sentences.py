"""Sentences, words and edges of a text, and what is not language in it: addresses, placeholders, numbers."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import regex
import sentencex

from transformer_mt.text.languages import UNSEGMENTED, base_code

# A URL is matched only at its first character: otherwise the time for a line without spaces would be
# quadratic in its length.
ADDRESS = (
    r"(?<![A-Za-z0-9])(?i:https?|ftps?|sftp|ssh|file|git|mailto|tel):/?/?[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.])(?i:www)\.[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.@/-])(?:[A-Za-z0-9][\w-]*\.){1,6}[A-Za-z][\w-]*(?::\d{1,5})?/[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w"
)
# Placeholders with braces: templates, shells, Python and .NET (names and numbers with a format), ICU, Fluent.
_BRACES = (
    r"\{\{\{?[^{}\n]*\}\}\}?|\{%[^{}\n]*%\}|[$#%]\{[^{}\n]+\}|\$t\([^()\n]*\)"
    r"|\{[\w.\[\]:!#-]*\}|\{\s*-?\$?[\w-]+\s*\}|\{\d+(?:,-?\d+)?:[^{}\n]*\}"
    r"|\{[\w.\[\]]*(?:![rsa])?:(?:(?:[^{}\n]?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(?:\.\d+)?[a-zA-Z%]?"
    r"|[^{}\n]*%[a-zA-Z][^{}\n]*)\}"
    r"|\{\s*\w+\s*,\s*(?:number|date|time|spellout|ordinal|duration)\b[^{}\n]*\}"
)
# Placeholders with %: C (with positions), Python and Ruby (with names), Apple, Twig, dates, Qt.
_SIZES = r"[-+0#']*+(?:\d++|\*)?+(?:\.(?:\d+|\*))?+"
_PRINTF = (
    rf"%(?:\(\w+\)|<\w+>){_SIZES}[a-zA-Z]|%%|(?<![\w%])%[A-Za-z_]\w+%(?![\w%])|%(?:\d+\$)?#@\w+@"
    r"|(?<![\d%])%L?\d{1,2}(?![\d$.a-zA-Z])"
    rf"|(?<![\d%])%(?:\d+\$)?{_SIZES}(?:hh?|ll?|[Lqjzt])?[a-zA-Z@](?![A-Za-z])"
)
_CODE = r"<%[^\n]{0,2000}?%>|<\?[^\n]{0,2000}?\?>"
_TAG = r"</?[A-Za-z][\w:.-]*(?:\s[^<>\n]*)?/?>|</?\d+\s*/?>|&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#x[\dA-Fa-f]{1,6});"
_EMOJI_PARTS = r"\u2600-\u27bf\u2b00-\u2bff\U0001F000-\U0001FAFF"
_ONE_EMOJI = rf"[{_EMOJI_PARTS}][\ufe0e\ufe0f]?[\U0001F3FB-\U0001F3FF]?"
# Flags are two letters, or a flag and tags; persons with professions, families and the like are joined.
_EMOJI = rf"[\U0001F1E6-\U0001F1FF]{{2}}|{_ONE_EMOJI}(?:\u200d{_ONE_EMOJI})*[\U000E0020-\U000E007F]*"
# Only symbols that are not also words: "in" and "bar" are left out.
_UNIT = (
    r"(?:[kcdmµμn]?m[²³]|[kcdmµμn]?m(?:/s²?|/h)?|km/h|mph|[kmµμ]?g|t|[cdmµμ]?[lL]|[kMGT]?(?:Hz|Wh|W|V|Pa|bit)"
    r"|[kKMGT]i?B|m[AVW]|mAh|[mµμn]?s|h|min|°\s?[CFK]?|%%?|‰|dB|px|pt|rpm|ppm|mmHg|kcal|ft|lbs?|oz)"
)
_DIGITS = r"(?<![A-Za-z0-9.,])\d+(?:[.,'’\u00a0\u202f]\d+){0,6}"
_LITERAL_NUMBER = rf"{_DIGITS}[ \u00a0\u202f]?{_UNIT}(?![A-Za-z0-9])"

_OF_PROGRAMS = "|".join((ADDRESS, _CODE, _BRACES, _PRINTF, _TAG, _EMOJI))
OF_PROGRAMS = re.compile(_OF_PROGRAMS)
"""Addresses, placeholders, tags and emoji: digits in them are no numbers of the text."""
USUAL = re.compile(f"{_OF_PROGRAMS}|{_LITERAL_NUMBER}")
"""Everything in OF_PROGRAMS, and numbers with units."""
_MAY_MATCH = re.compile(rf"[{{<%&@$\d{_EMOJI_PARTS}]|[A-Za-z]:|[A-Za-z]\.[A-Za-z]")
_IS_NUMBER = re.compile(_LITERAL_NUMBER)
_SEPARATORS = re.compile(r"[\s.,'’]")


@lru_cache(maxsize=1024)  # a line is asked about four times
def may_match(text: str) -> bool:
    """True if USUAL may match in the text: a quick check, because USUAL takes long to search."""
    return _MAY_MATCH.search(text) is not None


def number_with_unit(text: str) -> str | None:
    """A number with a unit, without the spaces and separators in which languages differ (3.5 kg and 3,5kg);
    None for any other text.
    """
    return _SEPARATORS.sub("", text) if _IS_NUMBER.fullmatch(text) else None


def has_words(text: str, keep: Callable[[str], list[tuple[int, int]]] | None = None) -> bool:
    """True if there is anything to translate: a letter of any script, outside of addresses, placeholders,
    numbers with units, and the spans that `keep` returns.
    """
    if not any(map(str.isalpha, text)):
        return False
    spans = keep(text) if keep else []
    if not spans and not may_match(text):
        return True
    letters = list(text)
    for begin, end in [*spans, *(match.span() for match in USUAL.finditer(text))]:
        letters[begin:end] = " " * (end - begin)
    return any(map(str.isalpha, letters))


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
# Each run of marks is tried only from its beginning, so that the time is linear in the length of the text.
_END, _GREEK_END = (
    regex.compile(rf"(?<![{marks}])([{marks}]++){_CLOSING}") for marks in (_MARKS, _MARKS + ";")
)


def end_pattern(language: str) -> "regex.Pattern[str]":
    """Pattern of the marks at the end of a text, its first group, with what closes after them."""
    return _GREEK_END if base_code(language) == "el" else _END


def final_mark(text: str, language: str = "") -> tuple[int, int] | None:
    """The span of the marks at the end of the text, before closing quotes and brackets; None if it has none.
    In Greek, a semicolon is a question mark.
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


# The time that sentencex takes grows with the square of the number of quotation marks in a text. Longer texts
# are segmented in blocks, which end where a sentence may end.
_BLOCK = 2000
_MAY_END = regex.compile(rf"[.!?…]\s|(?![.!?…]){FINAL_MARK}|\n")


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of a text, each with the white space after it, so that joining them gives the text.

    Each sentence has a letter. A part without letters, such as the number of a list item ("1. "), belongs to
    the sentence after it, or at the end of the text to the sentence before it.
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
