"""The edges of a line, which are no part of the sentence: white space and bullets."""

import re

from transformer_mt.text.final_marks import final_mark
from transformer_mt.text.languages import base_code

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
