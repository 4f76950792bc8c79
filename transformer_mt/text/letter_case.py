"""Capitals and small letters as a language has them: the one rule for all that changes them."""

import unicodedata
from collections.abc import Callable
from typing import Any

from transformer_mt.text.languages import base_code

_DOTLESS_I = ("tr", "az")
"""Languages that have the pairs I ı and İ i."""
_ACUTE = "\u0301"


def letter_case(language: str) -> dict[str, Any]:
    """How a language differs in its capitals from others: `pairs` of small and capital letters of its own, an
    accent that capitals are written `without`, and whether it has `capitals` at all.
    """
    code = base_code(language)
    if code in _DOTLESS_I:
        return {"pairs": [["i", "İ"], ["ı", "I"]]}
    if code == "el":
        return {"without": _ACUTE}
    # Georgian's capitals of Unicode are for emphasis, and rarely in a vocabulary.
    return {"capitals": False} if code == "ka" else {}


def to_capitals(text: str, language: str) -> list[str]:
    """The text in capitals, in one string per character: ß becomes SS. Greek capitals have no accents, and
    Georgian is written without capitals.
    """
    case = letter_case(language)
    if not case.get("capitals", True):
        return list(text)
    pairs = dict(case.get("pairs", ()))
    letters = [pairs.get(character) or character.upper() for character in text]
    return [_without(letter, case["without"]) for letter in letters] if "without" in case else letters


def to_small_letters(text: str, language: str) -> str:
    """The text in small letters; it has the same length."""
    for small, capital in letter_case(language).get("pairs", ()):
        text = text.replace(capital, small)
    # Not one letter at a time: a final sigma depends on its neighbours. İ would become two characters.
    return text.replace("İ", "i").lower()


def titled(text: str, language: str) -> str:
    """Each word with a capital; in Dutch IJ is one letter."""
    return " ".join(_capitalised(word, language) for word in text.split(" "))


def _capitalised(word: str, language: str) -> str:
    # Not str.title of the word, which takes the letter after an apostrophe for the first of another.
    code = base_code(language)
    if code in _DOTLESS_I and word[:1] == "i":
        return "İ" + word[1:]
    first = 2 if code == "nl" and word[:2].lower() == "ij" else 1
    capital: Callable[[str], str] = str.upper if first == 2 else str.title  # ǆ has the title form ǅ
    return capital(word[:first]) + word[first:]


def casefolded(text: str, language: str) -> str:
    """The text without capitals, to compare it."""
    if base_code(language) in _DOTLESS_I:
        text = text.replace("I", "ı").replace("İ", "i")
    return text.casefold()


def _without(letter: str, accent: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", letter).replace(accent, ""))
