"""Memory that a device has for this process, and the process's peak."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

# Fraction of the free memory to use; the rest is for other processes, fragmentation and validation.
_SHARE = 0.8


def free_memory(device: torch.device) -> int:
    """Bytes an update may use, including those this process already holds."""
    if device.type == "cuda":
        return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)))
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # they measure at the same time
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            free = int(line.split()[1]) * 1024
    for most, used in _limits():
        free = min(free, max(0, most - used))
    return int(_SHARE * (free / ranks_here + _resident()))


def reset_peak(device: torch.device) -> None:
    """Let `peak_memory` count from now on, where the system can do that."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM


def peak_memory(device: torch.device) -> int:
    """The most bytes in use since `reset_peak`; on systems without /proc since the start of the process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return _of_status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _resident() -> int:
    """The resident memory of this process in bytes; 0 without /proc, as the peak may be outdated."""
    return _of_status("VmRSS")


def _of_status(key: str) -> int:
    for line in _lines("/proc/self/status"):
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _limits() -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of each control group of this process: of its container, batch job or
    service.
    """
    for line in _lines("/proc/self/cgroup"):
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds and "memory" not in kinds.split(","):
            continue
        root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        if kinds:  # the first version of control groups
            root, names = f"{root}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        folder = Path(f"{root}{path}")
        for parent in (folder, *folder.parents):
            most, used = ("".join(_lines(f"{parent}/{name}")) for name in names)
            if most.isdecimal() and used.isdecimal():
                of_kind = dict(line.split(" ", 1) for line in _lines(f"{parent}/memory.stat") if " " in line)
                cached = of_kind.get("total_inactive_file", of_kind.get("inactive_file", "0"))
                # The system gives up copies of files before anything else
                yield (int(most), max(0, int(used) - int(cached)))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
    except OSError:
        return []
