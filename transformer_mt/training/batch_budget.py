"""`train.batch_tokens: auto`: the largest budget of padded tokens whose update fits the memory of
the device.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

from transformer_mt.config import Config
from transformer_mt.data.batching import Batch, make_batch
from transformer_mt.data.prepare import PreparedData
from transformer_mt.device import choose_precision
from transformer_mt.errors import WorkError
from transformer_mt.training.build import build_trial_updater
from transformer_mt.training.run import model_for

# Fraction of the free memory to use; the rest is for other processes, fragmentation and validation.
_SHARE = 0.8
_STEP = 512
# Largest budget: with larger batches an epoch has too few updates to learn from.
_MOST = 2**19


def largest_budget(measure: Callable[[int], int], limit: int, least: int) -> int:
    """The most tokens, a multiple of 512 or `least`, at which `measure` (bytes at the peak) stays under
    `limit`.

    An update's memory is a constant (weights, optimizer) plus a part proportional to its tokens. Two
    measurements give a linear estimate. The tokens are doubled, which improves the estimate, until it
    predicts that the next doubling would not fit.
    """
    tokens, used, fits = least, measure(least), 2 * least
    if used > limit:
        return least
    while 2 * tokens <= min(fits, _MOST):
        more = measure(2 * tokens)
        slope = max((more - used) / tokens, 1.0)  # a peak reached before hides the growth of the first ones
        fits = int(tokens + (limit - used) / slope)
        if more <= limit:
            tokens, used = 2 * tokens, more
    return max(least, min(fits, _MOST) // _STEP * _STEP)


def find_budget(config: Config, data: PreparedData, device: torch.device) -> int:
    """The largest budget for this config on this device, found by updates of a model that is then thrown
    away.
    """
    model = model_for(config, data.tokenizer).to(device)

    def fail(message: str) -> None:
        raise torch.OutOfMemoryError(message)

    # Each rank tries its own sizes: none may wait for another's step.
    dtype = choose_precision(config.train.precision, device)
    updater = build_trial_updater(config, model, device, dtype, fail)
    limit = free_memory(device)

    def measure(tokens: int) -> int:
        reset_peak(device)
        try:
            updater.update(
                [longest_batch(data.train.src_lengths, data.train.tgt_lengths, tokens)], 1e-6
            ).result()
        except (torch.OutOfMemoryError, WorkError):
            return 2 * limit
        return peak_memory(device)

    return largest_budget(measure, limit, least=max(1024, config.data.max_length))


def longest_batch(src_lengths: np.ndarray, tgt_lengths: np.ndarray, tokens: int) -> Batch:
    """The batch of so many tokens that needs the most memory: of the corpus's longest sentences."""
    longest = int(np.maximum(src_lengths, tgt_lengths).max())
    ids = np.full(longest - 1, 4)
    rows = [ids] * max(1, tokens // longest)
    return make_batch(rows, rows)


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
    """Resident bytes of this process; 0 on systems without /proc, where the peak may be from long ago."""
    return _of_status("VmRSS")


def _of_status(key: str) -> int:
    for line in _lines("/proc/self/status"):
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return 0


def _limits() -> Iterator[tuple[int, int]]:
    """Bytes allowed and used of each control group this process is in: a container's, a batch job's, a
    service's.
    """
    for line in _lines("/proc/self/cgroup"):
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds and "memory" not in kinds.split(","):
            continue
        root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        if kinds:  # the first version of control groups
            root, names = f"{root}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        folder = Path(f"{root}{path}")
        for each in (folder, *folder.parents):
            most, used = ("".join(_lines(f"{each}/{name}")) for name in names)
            if most.isdecimal() and used.isdecimal():
                of_kind = dict(line.split(" ", 1) for line in _lines(f"{each}/memory.stat") if " " in line)
                cached = of_kind.get("total_inactive_file", of_kind.get("inactive_file", "0"))
                # The system gives up copies of files before anything else
                yield (int(most), max(0, int(used) - int(cached)))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
    except OSError:
        return []
