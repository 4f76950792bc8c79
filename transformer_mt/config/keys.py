"""Every key of the YAML, by its dotted path."""

import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from transformer_mt.config.corpus import CORPORA


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    """(dotted path, meaning, default) of every key below `section`, in order."""
    for name, field in section.model_fields.items():
        yield prefix + name, " ".join((field.description or "").split()), field.default
        # A key may be a section, or a word or a section (model.attention.score); corpora are read as a whole.
        for kind in typing.get_args(field.annotation) or [field.annotation]:
            if isinstance(kind, type) and issubclass(kind, BaseModel) and prefix + name not in CORPORA:
                yield from keys(kind, f"{prefix}{name}.")
