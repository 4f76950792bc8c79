"""The name of a part as the value of a key, alone or with settings below it.

`loss: focal` and `loss: {focal: {gamma: 3}}` name the same class. Names are looked up when a config is read,
so a program may register a part before that. The settings are checked against the class when a training
begins (config/build_part.py), so that reading a config imports no part.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError, core_schema

from transformer_mt.companion import Kind
from transformer_mt.parts import names_of, origin_of
from transformer_mt.settings.section import OF_RUN

_ONLY_TRAINING: tuple[Kind, ...] = (
    "objective", "loss", "optimizer", "schedule", "change", "metric", "logger", "preparation_engine",
)  # fmt: skip
"""Kinds that translation does not need."""


_SERIALIZATION = core_schema.plain_serializer_function_ser_schema(
    lambda part: getattr(part, "as_yaml", part), when_used="json"
)


class PartName(str):
    """The name of a part, and the settings that the config gives it."""

    settings: Mapping[str, Any]

    def __new__(cls, name: str, settings: Mapping[str, Any] | None = None) -> "PartName":
        part = super().__new__(cls, name)
        part.settings = dict(settings or {})
        return part

    def __getnewargs__(self) -> tuple[str, Mapping[str, Any]]:  # type: ignore[override]
        return str(self), self.settings  # for copies, also those sent to another process

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True and self.settings == getattr(other, "settings", self.settings)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(cls, serialization=_SERIALIZATION)

    @property
    def as_yaml(self) -> Any:
        """The value of the key: a name, or a name with its settings."""
        return {str(self): dict(self.settings)} if self.settings else str(self)


class PartOf:
    """The type of a key that names a part: `Annotated[PartName, PartOf("loss")]`."""

    def __init__(self, kind: Kind, *more: str, has_ours: bool = True) -> None:
        """`more` are words that the key accepts besides names of parts. If `has_ours` is false, the key does
        not accept our own parts, because other keys turn them on.
        """
        self.kind, self.more, self.has_ours = kind, more, has_ours

    @property
    def names(self) -> list[str]:
        ours, others = names_of(self.kind)
        return [*(ours if self.has_ours else ()), *self.more, *others]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(self._validate, serialization=_SERIALIZATION)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        name: dict[str, Any] = {"type": "string"} | ({"enum": self.names} if self.names else {})
        below = {"type": "object", "propertyNames": name, "minProperties": 1, "maxProperties": 1}
        return {"anyOf": [name, below]}

    def _validate(self, value: Any, info: ValidationInfo) -> PartName:
        if isinstance(value, PartName):
            return value
        name, settings = value, None
        if isinstance(value, dict) and len(value) == 1:
            name, settings = next(iter(value.items()))
        if not isinstance(name, str) or not isinstance(settings, dict | None):
            raise PydanticCustomError(
                "must_be", "must be a name, or one name with its settings: {{NAME: {{key: value}}}}"
            )
        is_needed = info.context is not OF_RUN or self.kind not in _ONLY_TRAINING
        if is_needed and name not in self.names:
            raise PydanticCustomError(
                "unknown_part", "{must}", {"must": self._must(), "name": name, "kind": self.kind}
            )
        return PartName(name, settings)

    def _must(self) -> str:
        *first, last = [repr(name) for name in self.names] or [""]
        if not last:
            return "must be a name that an installed companion brings"
        return f"must be {', '.join(first)} or {last}" if first else f"must be {last}"


def part_of(key: FieldInfo | Any) -> PartOf | None:
    """The `PartOf` of a key or of its type, also inside a union or a list; None if the key names no part."""
    below: tuple[Any, ...] = get_args(key)
    metadata: list[Any] = []
    if isinstance(key, FieldInfo):
        below, metadata = (key.annotation,), key.metadata
    elif get_origin(key) is Annotated:
        below, metadata = below[:1], list(below[1:])
    own = next((mark for mark in metadata if isinstance(mark, PartOf)), None)
    return own or next((mark for inner in below if (mark := part_of(inner))), None)


def part_title(kind: str, name: str, **more: Any) -> str:
    """How a config records a part of others: `loss focal`."""
    return f"{kind.replace('_', ' ')} {name}"


def origins(config: BaseModel) -> dict[str, str]:
    """The origin of each part that a config names, except our own parts."""
    named = ((kind, name, origin_of(kind, name)) for _, kind, name in parts_named(config))
    return {part_title(kind, name): origin for kind, name, origin in named if origin}


def parts_named(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Kind, PartName]]:
    """(dotted path, kind, name) of each part that a section and those below it name."""
    for name, field in type(section).model_fields.items():
        value, path = getattr(section, name), f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from parts_named(value, f"{path}.")
            continue
        if (mark := part_of(field)) is not None:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, PartName) and each not in mark.more:
                    yield path, mark.kind, each
