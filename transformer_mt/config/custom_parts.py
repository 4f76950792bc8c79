"""Parts that are not the core's: a Python program or a companion brings them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from transformer_mt.companion import load
from transformer_mt.errors import InputError

MakeScore = Callable[[int, int], Any]
"""(heads, width of a head) -> a Score (model/variants/attention_scores.py); a subclass of Score is one."""

_score: ContextVar[MakeScore | None] = ContextVar("custom_score", default=None)
_loss: ContextVar[type | None] = ContextVar("custom_loss", default=None)


@contextmanager
def using(score: MakeScore | None = None, loss: type | None = None) -> Iterator[None]:
    """Models and trainings within it have these custom parts; None keeps that of a caller."""
    tokens = _score.set(score or _score.get()), _loss.set(loss or _loss.get())
    try:
        yield
    finally:
        _score.reset(tokens[0])
        _loss.reset(tokens[1])


def brought_score(kind: str, num_heads: int, head_width: int) -> Any:
    """A new score of a companion, or of the program for `custom`. InputError if the program passed none."""
    if kind != "custom":
        return load("attention_score", kind)(num_heads, head_width)
    if (make := _score.get()) is None:
        raise InputError(
            "`model.attention.score: custom` must be given its class in Python: "
            "train(config, attention_score=...), Translator.load(folder, attention_score=...)"
        )
    return make(num_heads, head_width)


def brought_position(kind: str, num_heads: int, head_width: int) -> Any:
    """A new position bias of a companion."""
    return load("position", kind)(num_heads, head_width)


def brought_loss(kind: str) -> Any:
    """The class of a companion's loss, or of the program's for `custom`."""
    if kind != "custom":
        return load("loss", kind)
    if (loss := _loss.get()) is None:
        raise InputError("`train.loss: custom` must be given its class in Python: train(config, loss=...)")
    return loss
