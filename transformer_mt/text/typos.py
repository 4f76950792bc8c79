"""Misspellings: a neighbouring key, two letters swapped, one letter left out or doubled."""

from random import Random

# Rows of keys, by script. Neighbours are left and right of a key, above and below it.
_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    ("ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("ضصثقفغعهخحج", "شسيبلاتنمكط", "ئءؤرىةوزظ"),
    ("קראטוןםפ", "שדגכעיחלך", "זסבהנמצתץ"),
)
_LETTERS_OF_A_TYPO = 40
"""Letters per typo; a source has at least one."""


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
