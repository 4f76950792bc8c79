"""Text in capitals. Models hardly know it: it is translated in lower case, and its translation is written in
capitals.
"""

import re
from collections.abc import Iterable

from transformer_mt.text.languages import base_code

_WORD = re.compile(r"[^\W\d_]+")
# Fewer and shorter words may be acronyms, as in "EU, NATO".
_MIN_WORDS, _MIN_LETTERS = 3, 5
_DOTLESS_I = ("tr", "az")  # Turkish and Azerbaijani have the pairs I ı and İ i


def is_in_capitals(text: str, keep: Iterable[tuple[int, int]] = ()) -> bool:
    """Whether all letters are capitals, in three words or in a word of five letters at least. The (begin,
    end) spans in `keep` do not count.
    """
    for begin, end in keep:
        text = text[:begin] + " " * (end - begin) + text[end:]
    if not text.isupper():  # nearly every text: the words are not needed
        return False
    words = _WORD.findall(text)
    is_long = len(words) >= _MIN_WORDS or any(len(word) >= _MIN_LETTERS for word in words)
    return is_long and all(letter.isupper() for word in words for letter in word)


def to_sentence_case(text: str, language: str, keep: Iterable[tuple[int, int]] = ()) -> str:
    """A text in capitals with only its first letter as a capital, and in English the word I. It has the same
    length; the spans in `keep` stay as they are.
    """
    code = base_code(language)
    dotted = text.replace("I", "ı") if code in _DOTLESS_I else text
    # Not one letter at a time: a final sigma depends on its neighbours. İ would become two characters.
    lower = dotted.replace("İ", "i").lower()
    capitals = re.compile(r"\bi\b").finditer(lower) if code == "en" else ()
    kept = [*keep, *(match.span() for match in capitals)]
    if first := _WORD.search(text):
        kept.append((first.start(), first.start() + 1))
    letters = list(lower)
    for begin, end in kept:
        letters[begin:end] = text[begin:end]
    return "".join(letters)


def to_capitals(text: str, language: str, keep: Iterable[tuple[int, int]] = ()) -> list[str]:
    """The text in capitals, in one string per character: ß becomes SS. The spans in `keep` stay as they
    are.
    """
    i = "İ" if base_code(language) in _DOTLESS_I else "I"
    kept = {position for span in keep for position in range(*span)}
    return [c if n in kept else i if c == "i" else c.upper() for n, c in enumerate(text)]
