"""Texts of iOS and macOS programs (.strings): `"key" = "value";` with comments."""

import re

from transformer_mt.documents.markup.marked_text import Piece
from transformer_mt.documents.strings.quoted import pieces_of_string
from transformer_mt.errors import InputError

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_BETWEEN = re.compile(r"(?:\s|//[^\n]*(?:\n|\Z)|/\*.*?\*/)+", re.DOTALL)
_ENTRY = re.compile(rf'(?P<key>{_QUOTED}|[\w.$-]+)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*;', re.DOTALL)


def parse_strings(text: str, name: str) -> list[Piece]:
    """The pieces of a file. InputError where an entry is none."""
    position = len(text) - len(text.removeprefix("\ufeff"))
    pieces: list[Piece] = [text[:position]]
    while position < len(text):
        if between := _BETWEEN.match(text, position):
            pieces.append(between[0])
            position = between.end()
            continue
        entry = _ENTRY.match(text, position)
        if entry is None:
            line = text.count("\n", 0, position) + 1
            raise InputError(
                f'{name}:{line}: must be "key" = "value"; but is {text[position : position + 40]!r}'
            )
        begin, end = entry.span("value")
        pieces += [text[position:begin], *pieces_of_string(text[begin:end]), text[end : entry.end()]]
        position = entry.end()
    return pieces
