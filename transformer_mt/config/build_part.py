"""Find the class and the settings of each part that a config names."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from transformer_mt.companion import Kind, resolve, shown
from transformer_mt.config.error_sentences import sentences
from transformer_mt.errors import InputError
from transformer_mt.parts import KINDS, load_part
from transformer_mt.settings.part import PartName, parts_named
from transformer_mt.settings.section import Mark

T = TypeVar("T")


def part_class(kind: Kind, name: str, key: str, base: type[T] | tuple[type[T], ...]) -> type[T]:
    """The class that the value of a key names. Raises InputError unless it is a subclass of `base`, which
    may be a tuple of classes.
    """
    part = load_part(kind, name)
    if not (isinstance(part, type) and issubclass(part, base)):
        bases = base if isinstance(base, tuple) else (base,)
        names = " or ".join(f"{one.__module__}.{one.__qualname__}" for one in bases)
        raise InputError(f"`{key}: {name}` must be a subclass of {names}, but is {shown(part)}")
    return part


def part_settings(part: Any, name: PartName | str, key: str) -> dict[str, Any]:
    """Keyword arguments for a part: `settings` if it has a section `Settings`, else none. Raises InputError
    for settings that the part does not have.
    """
    given = getattr(name, "settings", {})
    section: type[BaseModel] | None = getattr(part, "Settings", None)
    if section is None:
        if given:
            raise InputError(f"`{key}.{name}` must be left out: {name} has no settings")
        return {}
    try:
        return {"settings": section.model_validate(given)}
    except ValidationError as error:
        lines = sentences(error, {}, section)
        parts = [part for line in lines for part in ("\n", f"{key}.{name}: ", *line)]
        raise InputError(*parts[1:]) from None


def parts_of(kind: Kind, names: Iterable[PartName], key: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The class and the keyword arguments (see `part_settings`) of each part that a key names."""
    for name in names:
        part = part_class(kind, name, key, resolve(KINDS[kind].base))
        yield part, part_settings(part, name, key)


def part_files(config: BaseModel) -> dict[str, list[Path]]:
    """The files that settings of parts name, by the dotted key of the setting. Such settings are marked with
    Location in `Settings`. A key has several files if the config names a part more than once.
    """
    files: dict[str, list[Path]] = {}
    for key, kind, name in parts_named(config):
        settings = part_settings(load_part(kind, name), name, key).get("settings") if name.settings else None
        for field, info in type(settings).model_fields.items() if settings else ():
            if Mark.LOCATION in info.metadata and (file := getattr(settings, field)) is not None:
                files.setdefault(f"{key}.{name}.{field}", []).append(Path(file))
    return files
