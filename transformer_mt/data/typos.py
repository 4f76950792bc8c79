"""Misspellings: a neighbouring key, two letters swapped, one letter left out or doubled."""

from random import Random

# Rows of keys, by script. Neighbours are beside a key, and above and below it.
_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    ("ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("ضصثقفغعهخحج", "شسيبلاتنمكط", "ئءؤرىةوزظ"),
    ("קראטוןםפ", "שדגכעיחלך", "זסבהנמצתץ"),
)
_LETTERS_OF_A_TYPO = 40
"""One typo in so many letters, and at least one."""


def _neighbours() -> dict[str, str]:
    found: dict[str, str] = {}
    for rows in _KEYBOARDS:
        for number, row in enumerate(rows):
            for place, key in enumerate(row):
                beside = row[max(0, place - 1) : place] + row[place + 1 : place + 2]
                for other in (number - 1, number + 1):
                    if 0 <= other < len(rows):
                        beside += rows[other][place : place + 1]
                found[key] = beside
    return found


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


def _misspell(characters: list[str], place: int, rng: Random) -> None:
    """One typo at a place; each element may be no character or several afterwards."""
    letter = characters[place]
    if len(letter) != 1:
        return
    beside = _NEIGHBOURS.get(letter.lower(), "")
    kind = rng.choice(["swap", "drop", "double", *(["key"] if beside else [])])
    follows = characters[place + 1] if place + 1 < len(characters) else ""
    if kind == "swap" and follows.isalpha():
        characters[place], characters[place + 1] = follows, letter
    elif kind == "key":
        other = rng.choice(beside)
        characters[place] = other.upper() if letter.isupper() else other
    elif kind == "drop":
        characters[place] = ""
    else:
        characters[place] = letter * 2
