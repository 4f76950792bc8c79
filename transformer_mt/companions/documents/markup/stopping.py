"""Reading that another thread can stop: a client has gone, or it takes too long."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Event

_STOP: ContextVar[Event | None] = ContextVar("stop", default=None)


class StoppedError(Exception):
    """Nobody waits for the document any more."""


@contextmanager
def stopped_by(event: Event | None) -> Iterator[None]:
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


def go_on() -> None:
    """StoppedError if the reading is to stop."""
    if (event := _STOP.get()) is not None and event.is_set():
        raise StoppedError
