"""Every key of the YAML, by its dotted path."""

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from transformer_mt.settings.part import PartName, part_of
from transformer_mt.settings.section import Mark, Searched, members

CORPORA = ("data.train", "data.valid")
"""Keys whose value is replaced, not merged: the keys of two corpora together are no valid corpus."""


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """(dotted path, meaning, default) of every key below `section`, in order."""
    for name, field in section.model_fields.items():
        yield prefix + name, " ".join((field.description or "").split()), field.default
        if prefix + name not in CORPORA:  # corpora are read as a whole
            for below in _sections(field):
                yield from keys(below, f"{prefix}{name}.")


def marks(section: type[BaseModel], dotted: str) -> set[Mark]:
    """The marks of a key, and of the sections that it is in. The path may lead into a corpus."""
    name, _, rest = dotted.partition(".")
    field = section.model_fields[name]
    marked = {mark for mark in field.metadata if isinstance(mark, Mark)}
    if rest and part_of(field) is not None and not _sections(field):
        return marked | {Mark.CHANGEABLE}  # a setting of a part
    below = [kind for kind in _sections(field) if rest.split(".")[0] in kind.model_fields]
    return marked | marks(below[0], rest) if rest and below else marked


def searched_keys(section: type[BaseModel], prefix: str = "") -> dict[str, Searched]:
    """The dotted paths of the keys that `transformer-mt tune` may search."""
    found: dict[str, Searched] = {}
    for name, field in section.model_fields.items():
        if marked := [mark for mark in field.metadata if isinstance(mark, Searched)]:
            found[prefix + name] = marked[0]
        for below in _sections(field) if prefix + name not in CORPORA else []:
            found |= searched_keys(below, f"{prefix}{name}.")
    return found


def part_keys(section: type[BaseModel], prefix: str = "") -> set[str]:
    """The dotted paths of the keys that name one part."""
    paths: set[str] = set()
    for name, field in section.model_fields.items():
        if part_of(field) and not any(typing.get_origin(kind) is list for kind in members(field.annotation)):
            paths.add(prefix + name)
        for below in _sections(field) if prefix + name not in CORPORA else []:
            paths |= part_keys(below, f"{prefix}{name}.")
    return paths


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by their dotted paths, as an override names them. A part has its name, and below it its
    settings.
    """
    dotted: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            dotted |= flat(value, f"{prefix}{key}.")
            continue
        if isinstance(value, list):
            value = [item.as_yaml if isinstance(item, PartName) else item for item in value]
        dotted[prefix + key] = str(value) if isinstance(value, PartName) else value
        if isinstance(value, PartName):
            dotted |= flat(dict(value.settings), f"{prefix}{key}.{value}.")
    return dotted


def _sections(field: FieldInfo) -> list[type[BaseModel]]:
    """The section classes in a key's type, alone or as items of a list. Some keys accept a word or a section
    (model.attention.score).
    """
    kinds = members(field.annotation)
    kinds += [
        kind for item in kinds if typing.get_origin(item) is list for kind in members(*typing.get_args(item))
    ]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
