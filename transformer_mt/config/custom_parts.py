"""Parts that are not the core's: a Python program or a companion brings them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from transformer_mt.companion import shown
from transformer_mt.errors import InputError, Setting
from transformer_mt.parts import load_part

MakeScore = Callable[[int, int], Any]
"""(heads, width of a head) -> a Score (model/variants/attention_scores.py); a subclass of Score is one."""

_score: ContextVar[MakeScore | None] = ContextVar("custom_score", default=None)
_loss: ContextVar[type | None] = ContextVar("custom_loss", default=None)
_monitor: ContextVar[Any] = ContextVar("external_monitor", default=None)


@contextmanager
def using(score: MakeScore | None = None, loss: type | None = None, monitor: Any = None) -> Iterator[None]:
    """Models and trainings within it have these custom parts; None keeps that of a caller. `monitor` is the
    Metric of `train.monitor: external`.
    """
    given: list[tuple[ContextVar[Any], Any]] = [(_score, score), (_loss, loss), (_monitor, monitor)]
    tokens = [(variable, variable.set(part or variable.get())) for variable, part in given]
    try:
        yield
    finally:
        for variable, token in tokens:
            variable.reset(token)


def brought_score(kind: str, num_heads: int, head_width: int) -> Any:
    """A new score of a companion, or of the program for `custom`. InputError if the program passed none, or
    something else.
    """
    if kind != "custom":
        return load_part("attention_score", kind)(num_heads, head_width)
    if (make := _score.get()) is None:
        raise InputError(
            "`model.attention.score: custom` must be given its class in Python: "
            "train(config, attention_score=...), Translator.load(folder, attention_score=...)"
        )
    if not callable(make):
        raise InputError(
            f"attention_score must be a function of (heads, width) or a class, but is {shown(make)}"
        )
    return make(num_heads, head_width)


def external_monitor() -> Any:
    """The metric of `train.monitor: external`."""
    if (metric := _monitor.get()) is None:
        raise InputError("`train.monitor: external` must be given its metric, with ", Setting("monitor"))
    return metric


def custom_names() -> dict[str, str]:
    """The names of the parts that the program brings, by their keys; the monitor's is how it is computed."""
    given = {"model.attention.score": _score.get(), "train.loss": _loss.get()}
    names = {f"`{key}`": shown(part) for key, part in given.items() if part is not None}
    monitor = _monitor.get()
    return names | ({} if monitor is None else {"`train.monitor`": str(monitor.signature([]))})


def may_be_packed(loss: str) -> bool:
    """False for a loss that reads one sentence in a row. Of a program's that is not given, as where its model
    translates, nothing is known.
    """
    if loss == "cross_entropy":  # without importing torch
        return True
    kind: Any = _loss.get() if loss == "custom" else load_part("loss", loss)
    return kind is None or bool(getattr(kind, "packed", True))  # what is no Loss is refused when it is built


def brought_loss(kind: str) -> Any:
    """The class of a companion's loss, or of the program's for `custom`."""
    if kind != "custom":
        return load_part("loss", kind)
    if (loss := _loss.get()) is None:
        raise InputError("`train.loss: custom` must be given its class in Python: train(config, loss=...)")
    return loss
