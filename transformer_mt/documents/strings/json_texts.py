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
"""The keys of the objects that the files of browsers' extensions consist of: their messages are texts."""


def parse_json(text: str, name: str) -> list[Piece]:
    """The pieces of a file. Values of keys that begin with `@` stay: they are about other keys (.arb)."""
    try:
        values = json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise InputError(f"{name}: must be JSON: it is nested too deep") from None
    except ValueError as error:
        raise InputError(f"{name}: must be JSON: {error}") from None
    pieces: list[Piece] = []
    position = 0
    for begin, end in _values(text, _are_messages(values)):
        pieces += [text[position:begin], *pieces_of_string(text[begin:end])]
        position = end
    return [*pieces, text[position:]]


def _are_messages(values: object) -> bool:
    """Whether a file is that of a browser's extension."""
    return isinstance(values, dict) and all(
        isinstance(value, dict) and "message" in value and value.keys() <= _OF_MESSAGES
        for value in values.values()
    )


def _values(text: str, are_messages: bool) -> Iterator[tuple[int, int]]:
    """The positions of the strings that are translated, without their quotes."""
    stays = [False]
    """Whether the text around everything, and that in each open object or list, stays."""
    key, position = "", 0
    while match := _STRUCTURE.search(text, position):
        position = match.end()
        is_about = are_messages and len(stays) == 3 and key != "message"
        own_stays = stays[-1] or key.startswith("@") or is_about
        if match[0] in "{[":
            stays.append(own_stays)
        elif match[0] in "}]":
            stays.pop()
        else:
            string = _STRING.match(text, match.start())
            assert string, "the text is JSON"
            position = string.end()
            if string[2]:
                key = string[1]
                continue
            if not own_stays:
                yield string.span(1)
        key = ""
