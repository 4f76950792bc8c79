"""Progress of work that takes more than two seconds, and how long work takes in words."""

import multiprocessing
import os
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

# A bar appears when the work has taken this long, so that short work shows none.
_DELAY_SECONDS = 2.0
# From here on numbers are written like 12.3k.
_ABBREVIATED = 10_000


def show_progress(
    items: Iterable[Any] | None, what: str, total: int | None = None, initial: int = 0, unit: str = "lines"
) -> tqdm:
    """A bar on stderr over the items; without items `update` moves it. It shows nothing in a log file."""
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
