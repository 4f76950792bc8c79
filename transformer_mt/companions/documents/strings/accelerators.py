"""Accelerators: marks before the letter that chooses an entry of a menu, as in `&File`, `_File`, `Fi~le`."""

import re
from collections.abc import Callable
from dataclasses import replace

from transformer_mt.companions.documents.markup.marked_text import MarkedText, Piece, Stays

# `&` and `~` may stand within a word, but not between capitals (R&D); `_` there is part of a name.
_ACCELERATOR = re.compile(
    r"(?P<mark>[&~])(?!\w+[;=])(?:(?<![^\W_].)(?=[^\W\d_])|(?<=[^\W\d_].)(?=[a-z]))|(?<!\w)(?P<low>_)(?=[^\W\d_])"
)


def pieces_with_accelerator(
    raw: str,
    pieces_of: Callable[[str], list[Piece]],
    read: Callable[[str], str] = str,
    write: Callable[[str], str] = str,
) -> list[Piece]:
    """The pieces of a string, whose accelerator is no part of its text. `read` gives the characters of
    what is written in the format, `write` writes them.
    """
    plain, marked = without_accelerator(read(raw))
    if plain == read(raw):
        return pieces_of(raw)
    pieces = pieces_of(write(plain))
    main = next((i for i, piece in enumerate(pieces) if isinstance(piece, MarkedText)), None)
    if main is None:  # what stays keeps its mark
        return [Stays(raw, piece.what) if isinstance(piece, Stays) else raw for piece in pieces[:1]]
    text = pieces[main]
    assert isinstance(text, MarkedText)
    return [*pieces[:main], replace(text, finish=lambda body: write(marked(read(body)))), *pieces[main + 1 :]]


def without_accelerator(raw: str) -> tuple[str, Callable[[str], str]]:
    """The string without its mark, and what sets one on a translation: before the same letter, at the
    beginning of a word if there is one, else before the first. A string with several, or none, stays.
    """
    places = list(_ACCELERATOR.finditer(raw))
    if len(places) != 1 or raw.count(places[0][0]) > 1:
        return raw, str
    place = places[0]
    letter = raw[place.end()].casefold()

    def marked(translation: str) -> str:
        starts = [match.start() for match in re.finditer(r"(?<![\w\\])[^\W\d_]", translation)]
        others = [i for i, character in enumerate(translation) if character.casefold() == letter]
        same = [i for i in starts if translation[i].casefold() == letter]
        same += [i for i in others if translation[:i][-1:] != "\\"]
        at = next(iter([*same, *starts]), None)
        return translation if at is None else f"{translation[:at]}{place[0]}{translation[at:]}"

    return raw[: place.start()] + raw[place.end() :], marked
