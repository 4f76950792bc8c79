"""Changes of a pair to how people also write: for `data.augment`, and for a robust evaluation."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from transformer_mt.text.languages import titled, to_capitals, to_small_letters
from transformer_mt.text.lines import Pair
from transformer_mt.text.sentences import final_mark

Languages = tuple[str, str]
"""Of the source and of the target."""


class TextChange(Protocol):
    """One way in which a pair is changed."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair: ...


class LanguageChange:
    """A change that depends on the languages of the pair."""

    def __init__(self, languages: Languages = ("", "")) -> None:
        self._source_lang, self._target_lang = languages


class UpperCase(LanguageChange):
    """Both sides in capitals."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return "".join(to_capitals(src, self._source_lang)), "".join(to_capitals(tgt, self._target_lang))


class TitleCase(LanguageChange):
    """Each word of both sides with a capital, as in headlines."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return titled(src, self._source_lang), titled(tgt, self._target_lang)


class LowerCase(LanguageChange):
    """The source without capitals; the target keeps its own."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return to_small_letters(src, self._source_lang), tgt


class NoFinalMark(LanguageChange):
    """Both sides without the mark that ends the sentence, where both have one."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return self._with_marks(src, tgt, lambda mark: "")

    def _with_marks(self, src: str, tgt: str, change: Callable[[str], str]) -> Pair:
        sides = []
        for text, language in ((src, self._source_lang), (tgt, self._target_lang)):
            if (span := final_mark(text, language)) is None:
                return src, tgt
            begin, end = span
            sides.append((text[:begin] + change(text[begin:end])).rstrip() + text[end:])
        return sides[0], sides[1]


class FinalMark(NoFinalMark):
    """Removes the mark at the end of both sides or repeats it, so that there are two or three; both equally
    often.
    """

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        if rng.random() < 0.5:
            return super().__call__(src, tgt, rng)
        more = rng.choice((1, 2))
        return self._with_marks(src, tgt, lambda mark: mark + mark[-1] * more)


class Typos:
    """The source misspelled; the target is right."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return with_typos(src, rng), tgt


# Rows of keys, by script. Neighbours are left and right of a key, above and below it.
_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    ("ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("ضصثقفغعهخحج", "شسيبلاتنمكط", "ئءؤرىةوزظ"),
    ("קראטוןםפ", "שדגכעיחלך", "זסבהנמצתץ"),
)
_LETTERS_OF_A_TYPO = 40
"""Letters per typo; a source gets at least one typo."""


def _neighbours() -> dict[str, str]:
    neighbours_of: dict[str, str] = {}
    for rows in _KEYBOARDS:
        for number, row in enumerate(rows):
            for position, key in enumerate(row):
                neighbours = row[max(0, position - 1) : position] + row[position + 1 : position + 2]
                for other in (number - 1, number + 1):
                    if 0 <= other < len(rows):
                        neighbours += rows[other][position : position + 1]
                neighbours_of[key] = neighbours
    return neighbours_of


_NEIGHBOURS = _neighbours()


def with_typos(text: str, rng: Random) -> str:
    """The text with some typos; scripts without a known keyboard have no wrong keys."""
    letters = [i for i, character in enumerate(text) if character.isalpha()]
    if len(letters) < 2:
        return text
    characters = list(text)
    for _ in range(max(1, len(letters) // _LETTERS_OF_A_TYPO)):
        _misspell(characters, rng.choice(letters), rng)
    return "".join(characters)


def _misspell(characters: list[str], position: int, rng: Random) -> None:
    """Make one typo in place; afterwards an element may be an empty string or several characters."""
    letter = characters[position]
    if len(letter) != 1:
        return
    neighbours = _NEIGHBOURS.get(letter.lower(), "")
    kind = rng.choice(["swap", "drop", "double", *(["key"] if neighbours else [])])
    follows = characters[position + 1] if position + 1 < len(characters) else ""
    if kind == "swap" and follows.isalpha():
        characters[position], characters[position + 1] = follows, letter
    elif kind == "key":
        other = rng.choice(neighbours)
        characters[position] = other.upper() if letter.isupper() else other
    elif kind == "drop":
        characters[position] = ""
    else:
        characters[position] = letter * 2
