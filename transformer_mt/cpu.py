"""The CPU cores of this process."""

import os


def usable_cores() -> int:
    """How many cores this process may use: fewer than the machine has, in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
