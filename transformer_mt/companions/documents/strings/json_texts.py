"""JSON of interface texts: the values that are strings; keys, numbers and white space stay as they are."""

import json
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from transformer_mt.companions.documents.markup.marked_text import Piece
from transformer_mt.companions.documents.strings.placeholders import forms_of_plural, pieces_of_string
from transformer_mt.errors import InputError

_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?', re.DOTALL)
_LOCALE = re.compile(r'("@@locale"\s*:\s*")[\w-]+(")')
_PLURAL = re.compile(r"(.+(?<!_ordinal))_other")
"""Matches i18next's key for the plural form `other`."""
_STRUCTURE = re.compile(r'["{}\[\]]')
_OF_MESSAGES = {"message", "description", "placeholders", "hash"}
"""The keys of an entry in the message files of browser extensions; only `message` holds a text."""


def parse_json(text: str, target_lang: str, name: str) -> list[Piece]:
    """The pieces of a file. Values of keys that begin with `@` stay, as they are about other keys (.arb), but
    the language in `@@locale` becomes the target's.
    """
    try:
        json.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise InputError(f"{name}: is nested too deeply to be read") from None
    except ValueError as error:
        raise InputError(f"{name}: must be JSON: {error}") from None
    text = _LOCALE.sub(lambda match: match[1] + target_lang.replace("-", "_") + match[2], text)
    pieces: list[Piece] = []
    position = 0
    for value in _values(text):
        raw, before = text[value.begin : value.end], text[position : value.begin]
        pieces += [before, *pieces_of_string(raw)]
        position = value.end
        plural = _PLURAL.fullmatch(value.key)
        if plural is None or f"{plural[1]}_one" not in value.siblings:
            continue
        gap, colon = re.findall(r'(\s*)"[^"\n]*"(\s*:\s*")\Z', before)[0]
        for key in (f"{plural[1]}_{form}" for form in forms_of_plural(target_lang)):
            if key not in value.siblings:
                pieces += [f'",{gap}"{key}"{colon}', *pieces_of_string(raw)]
    return [*pieces, text[position:]]


class _Value(NamedTuple):
    """A string that is translated."""

    begin: int
    end: int
    """Its position, without its quotes."""
    key: str
    siblings: AbstractSet[str]
    """The keys of the object that it stands in."""


@dataclass
class _Container:
    """An object or a list of the file."""

    parent: int
    """The index of its parent among all containers; index 0 is the file itself."""
    key: str
    is_object: bool
    keys: set[str] = field(default_factory=set)
    has_texts: bool = False
    """Whether a string stands directly in it; values of keys that begin with `$` or `@` do not count."""
    children: list[int] = field(default_factory=list)


def _values(text: str) -> Iterator[_Value]:
    """The strings that are translated."""
    containers = [_Container(0, "", is_object=False)]
    values: list[tuple[_Value, int]] = []
    """Each string, and the container it stands in."""
    key, depth, position = "", 0, 0
    while match := _STRUCTURE.search(text, position):
        position = match.end()
        if match[0] in "{[":
            containers[depth].children.append(len(containers))
            containers.append(_Container(depth, key, match[0] == "{"))
            depth = len(containers) - 1
        elif match[0] in "}]":
            depth = containers[depth].parent
        else:
            string = _STRING.match(text, match.start())
            assert string, "the text is JSON"
            position = string.end()
            if string[2]:
                key = string[1]
                containers[depth].keys.add(key)
                continue
            containers[depth].has_texts |= not key.startswith(("$", "@"))
            values.append((_Value(*string.span(1), key, containers[depth].keys), depth))
        key = ""
    has_messages = [_has_messages(one, containers) for one in containers]
    stays: list[bool] = []
    for number, one in enumerate(containers):
        stays.append(number > 0 and (stays[one.parent] or _is_about(one, containers, has_messages)))
    for value, number in values:
        one = _Container(number, value.key, False)
        if not stays[number] and not _is_about(one, containers, has_messages):
            yield value


def _has_messages(one: _Container, containers: Sequence[_Container]) -> bool:
    """True for the object of messages of a browser's extension: each of them is an object, too."""
    children = [containers[child].keys for child in one.children]
    return (
        one.is_object
        and not one.has_texts
        and all("message" in keys for keys in children)
        and any(keys <= _OF_MESSAGES for keys in children)
    )


def _is_about(one: _Container, containers: Sequence[_Container], has_messages: Sequence[bool]) -> bool:
    """True if a container or a value, given by its parent and key in `one`, only describes other texts."""
    is_entry = one.parent > 0 and has_messages[containers[one.parent].parent]
    return one.key.startswith("@") or (is_entry and one.key in _OF_MESSAGES - {"message"})
