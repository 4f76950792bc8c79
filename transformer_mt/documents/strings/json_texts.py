"""JSON of interface texts: the values that are strings; keys, numbers and white space stay as they are."""

import json
import re
from collections.abc import Iterator

from transformer_mt.documents.markup.marked_text import Piece
from transformer_mt.documents.strings.quoted import pieces_of_string
from transformer_mt.errors import InputError

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_STRUCTURE = re.compile(r'["{}\[\]]')
_OF_MESSAGES = {"message", "description", "placeholders"}
"""The keys of an object of which only the message is translated, in the files of browsers' extensions."""


def parse_json(text: str, name: str) -> list[Piece]:
    """The pieces of a file. Values of keys that begin with `@` stay: they are about other keys (.arb)."""
    try:
        json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise InputError(f"{name}: must be JSON: it is nested too deep") from None
    except ValueError as error:
        raise InputError(f"{name}: must be JSON: {error}") from None
    pieces: list[Piece] = []
    position = 0
    for begin, end in _values(text):
        pieces += [text[position:begin], *pieces_of_string(text[begin:end])]
        position = end
    return [*pieces, text[position:]]


def _values(text: str) -> Iterator[tuple[int, int]]:
    """The positions of the strings that are translated, without their quotes."""
    found: list[tuple[tuple[int, int], tuple[str, ...]]] = []
    path: list[str] = []
    keys_of: dict[tuple[str, ...], set[str]] = {}
    key, position = "", 0
    while match := _STRUCTURE.search(text, position):
        position = match.end()
        if match[0] in "{[":
            path.append(key)
        elif match[0] in "}]":
            path.pop()
        else:
            string = _STRING.match(text, match.start())
            assert string, "the text is JSON"
            position = string.end()
            if string[2]:
                key = string[1]
                keys_of.setdefault(tuple(path), set()).add(key)
                continue
            found.append((string.span(1), (*path, key)))
        key = ""
    messages = {at for at, keys in keys_of.items() if "message" in keys and keys <= _OF_MESSAGES}
    for span, keys in found:
        is_about = any(keys[:depth] in messages and keys[depth] != "message" for depth in range(len(keys)))
        if not is_about and not any(part.startswith("@") for part in keys):
            yield span
