"""What a person reads: lines on stderr, progress bars, and tables in Markdown."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

_receivers: list[Callable[[str], None]] = []


def say(text: str) -> None:
    """Print a message on stderr, above a progress bar; only rank 0 prints."""
    if os.environ.get("RANK", "0") == "0":
        (_receivers[-1] if _receivers else write)(text)


@cache
def say_once(text: str) -> None:
    """`say`, but not again."""
    say(text)


def write(text: str) -> None:
    """Print a message on stderr, whatever the rank. Once nobody reads stderr any more (a closed terminal, the
    end of a pipe), messages are dropped instead of raising: the process may have a training to save.
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


# A bar appears when the work has taken this long, so that short work shows none.
_DELAY_SECONDS = 2.0
# From here on numbers are written like 12.3k.
_ABBREVIATED = 10_000


def show_progress(
    items: Iterable[Any] | None, what: str, total: int | None = None, initial: int = 0, unit: str = "lines"
) -> "tqdm":
    """A bar on stderr over the items; without items `update` moves it. It shows nothing in a log file."""
    from tqdm import tqdm

    is_long = total is None or total >= _ABBREVIATED
    return tqdm(
        items, what, total, leave=False, unit=f" {unit}", unit_scale=is_long, initial=initial,
        delay=_DELAY_SECONDS, **terminal(),
    )  # fmt: skip


def terminal(shows: bool = True) -> dict[str, Any]:
    """tqdm's arguments for a bar on stderr. A terminal that reports no size has 80 columns and 24 rows: with
    none of them tqdm would print nothing.
    """
    is_worker = multiprocessing.parent_process() is not None
    if not shows or is_worker or sys.stderr is None or not sys.stderr.isatty():
        return {"disable": True}
    try:
        has_width = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except OSError:  # a stream without a file, as in IDLE
        has_width = False
    size = {} if has_width else {"ncols": 80, "nrows": 24}
    return {"file": sys.stderr, "dynamic_ncols": has_width, **size}


def time_left(done: float, total: float, seconds: float) -> float:
    """Seconds that the rest takes if it is as fast as what was done in the given seconds."""
    return (total - done) * seconds / done


def duration(seconds: float) -> str:
    """The time in at most two units: 40 s, 12 min, 3 h 20 min, 2 days 5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 36:
        return f"{hours} h {minutes} min" if hours < 10 else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} days {hours} h" if days < 10 else f"{seconds / 86_400:,.0f} days"


def table(rows: Sequence[Sequence[Any]], head: Sequence[str]) -> str:
    """A Markdown table; the cells stay as they are."""
    from tabulate import tabulate  # takes time to import, as tqdm does

    return tabulate(rows, headers=head, tablefmt="github", disable_numparse=True)


def with_names(facts: Iterable[tuple[str, str]]) -> str:
    """Join (name, fact) pairs into a text: the fact alone if all names share it, else each fact with its
    names.
    """
    whose: dict[str, dict[str, None]] = {}
    for name, fact in facts:
        whose.setdefault(fact, {})[name] = None
    if len(whose) == 1:
        return next(iter(whose))
    return "; ".join(f"{fact} ({', '.join(names)})" for fact, names in whose.items())
