"""Parts of a model that are not the core's: a Python program or a companion brings them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from transformer_mt.companion import load
from transformer_mt.errors import InputError

MakeScore = Callable[[int, int], Any]
"""(heads, width of a head) -> a Score (model/variants/attention_scores.py); a subclass of Score is one."""

_make: ContextVar[MakeScore | None] = ContextVar("custom_score", default=None)


@contextmanager
def using_score(make: MakeScore | None) -> Iterator[None]:
    """Models that are built within it have this custom score; None keeps that of a caller."""
    token = _make.set(make or _make.get())
    try:
        yield
    finally:
        _make.reset(token)


def brought_score(kind: str, num_heads: int, head_width: int) -> Any:
    """A new score of a companion, or of the program for `custom`. InputError if the program passed none."""
    if kind != "custom":
        return load("attention_score", kind)(num_heads, head_width)
    if (make := _make.get()) is None:
        raise InputError(
            "`model.attention.score: custom` must be given its class in Python: "
            "train(config, attention_score=...), Translator.load(folder, attention_score=...)"
        )
    return make(num_heads, head_width)


def brought_position(kind: str, num_heads: int, head_width: int) -> Any:
    """A new position bias of a companion."""
    return load("position", kind)(num_heads, head_width)
