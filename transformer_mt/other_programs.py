"""The use of this process's cores by other programs, which makes what is measured now too slow."""

import os
import time
from pathlib import Path

from transformer_mt.cpu import usable_cores
from transformer_mt.progress_bar import duration

_LEAST_SECONDS = 1.0
"""The shortest time over which the use of cores is measured: the system counts in hundredths of a second."""

_FEW_CORES = 0.2
"""The share of the cores whose use by others is not worth a word."""


class OtherPrograms:
    """The number of this process's cores that others use, on average from now on; none if not on Linux."""

    def __init__(self) -> None:
        self._begun = _used_by_others()

    def note(self, seconds: float) -> str:
        """The time that something which takes `seconds` now would take alone, if others use many cores."""
        clock, used = (now - begun for now, begun in zip(_used_by_others(), self._begun))
        cores, usable = used / max(_LEAST_SECONDS, clock), usable_cores()
        if cores < _FEW_CORES * usable or clock < _LEAST_SECONDS:
            return ""
        alone = duration(seconds * max(0.1, 1 - cores / usable))
        return f"; other programs use {cores:.1f} of {usable} cores: alone about {alone}"


def _used_by_others() -> tuple[float, float]:
    """The clock, and the CPU time of other programs on the cores of this process, in seconds."""
    try:
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return time.perf_counter(), 0.0
    rows = [line.split() for line in lines if line.partition(" ")[0] in names]
    # user, nice and system; then, after idle times, interrupts
    ticks = sum(int(value) for row in rows for value in row[1:4] + row[6:8])
    return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK") - time.process_time()
