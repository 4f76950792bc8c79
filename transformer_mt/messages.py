"""Progress messages and warnings of all modules."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

_receivers: list[Callable[[str], None]] = []


def say(text: str) -> None:
    """Print a message on stderr, above a progress bar; of several ranks rank 0 does so."""
    if os.environ.get("RANK", "0") == "0":
        (_receivers[-1] if _receivers else write)(text)


@cache
def say_once(text: str) -> None:
    """`say`, but not again."""
    say(text)


def write(text: str) -> None:
    """Print a message on stderr, whatever the rank. Where nobody reads it any more (a closed terminal, the
    end of a pipe), nothing is printed from then on: the process may have a training to save.
    """
    if sys.stderr is None:  # closed (2>&-): print would write it among the results
        return
    try:
        if "tqdm" in sys.modules:
            sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)  # above a bar, not over it
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except RuntimeError:  # a signal's handler, called while another message is written
        os.write(sys.stderr.fileno(), f"{text}\n".encode())
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process


@contextmanager
def messages_to(receive: Callable[[str], None]) -> Iterator[None]:
    """Within it, messages of all threads go to `receive`."""
    _receivers.append(receive)
    try:
        yield
    finally:
        _receivers.pop()
