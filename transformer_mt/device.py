"""The device of a training or a translation, its number formats, and its free memory."""

import contextlib
import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from transformer_mt.errors import InputError
from transformer_mt.messages import say_once


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` is the first GPU, else the CPU. Under torchrun each local rank has its
    own GPU: the one of its number, or the only one it sees.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,2})?|mps", name):
        raise InputError(f"the device must be auto, cpu, cuda, cuda:N or mps, but is {name}")
    local_rank = int(os.environ.get("LOCAL_RANK", 0)) if int(os.environ.get("WORLD_SIZE", 1)) > 1 else None
    count = torch.cuda.device_count()
    default = "cuda" if local_rank is None else f"cuda:{local_rank % (count or local_rank + 1)}"
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device(default)
        if torch.backends.mps.is_available() and local_rank is None:
            return torch.device("mps")
        if (problem := _driver_problem()) is not None:
            say_once(f"note: computing on the CPU, because {problem}")
        return torch.device("cpu")
    if ":" in name and local_rank is not None and name != default:
        raise InputError(
            f"the device must be cuda with several processes, each of which takes its own GPU, but is {name}"
        )
    device = torch.device(default if name == "cuda" else name)
    if device.type == "cuda" and (device.index or 0) >= count:
        problem = _driver_problem()
        reason = f": {problem}" if problem else f": the number of CUDA GPUs here is {count}; use cpu"
        raise InputError(f"there is no {device}{reason}")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("there is no mps device on this machine; use cpu")
    return device


# The least driver for each CUDA (NVIDIA, CUDA Toolkit release notes: minor version compatibility).
_LEAST_DRIVER = {"12": "525", "13": "580"}
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


def _driver_problem() -> str | None:
    """The reason why torch sees no GPU despite NVIDIA's driver; None if it sees one or there is no driver."""
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if torch.cuda.is_available() or is_hidden or not _DRIVER_FILE.exists():
        return None
    version = re.search(r"\b\d{3,}\.[\d.]+", _DRIVER_FILE.read_text(encoding="utf-8"))
    driver, cuda = f"NVIDIA's driver {version[0] if version else 'here'}", torch.version.cuda
    if cuda is None:
        return (
            f"torch {torch.__version__} is built for CPUs only, and {driver} is here: install another build"
        )
    return (
        f"torch {torch.__version__} finds no GPU by {driver}; its CUDA {cuda} needs driver "
        f"{_LEAST_DRIVER.get(cuda.split('.')[0], 'of its time')} or newer: install that, or a torch for an "
        "older CUDA"
    )


def use_device(device: torch.device) -> None:
    """Let a GPU be the current one: libraries such as Triton allocate there. InputError if torch cannot
    compute on it.
    """
    if device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    if not _has_code_for(major, minor):
        raise InputError(
            f"torch {torch.__version__} has no code for {torch.cuda.get_device_name(device)} "
            f"(capability {major}.{minor}); use cpu, a newer GPU, or an older torch"
        )
    # Flash and memory-efficient attention: cuDNN's makes a plan for each shape, and there are thousands. Only
    # packed batches, which have one, use it (`prefer_cudnn`).
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.allow_tf32 = False  # recurrent cells; torch's own default is True
    if device.index is not None:
        torch.cuda.set_device(device)


def _has_code_for(major: int, minor: int) -> bool:
    """True if torch was compiled for this capability or an earlier minor version of it, or has code for it or
    an older capability that the driver can compile (compute_N).
    """
    for name in torch.cuda.get_arch_list():
        kind, _, number = name.rstrip("af").partition("_")  # such as sm_90a or compute_120
        if not number.isdecimal():  # of AMD
            return True
        capability = int(number[:-1]), int(number[-1])
        if capability <= (major, minor) and (kind == "compute" or capability[0] == major):
            return True
    return False


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The dtype of matrix products; `auto` is bfloat16 where the device has instructions for it, else float16
    on a GPU.
    """
    if name != "auto":
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
        limit = (os.environ.get("ONEDNN_MAX_CPU_ISA") or "ALL").upper()
        if not any(word in limit for word in ("ALL", "DEFAULT", "BF16", "FP16", "AMX", "AVX10")):
            return torch.float32  # oneDNN would multiply bfloat16 without the instructions
        if any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")):
            return torch.bfloat16
    return torch.float32


def allow_tf32(device: torch.device, is_allowed: bool = True) -> None:
    """Allow or forbid TensorFloat-32 for the float32 matrix products of this process on an NVIDIA GPU. It has
    a mantissa of 10 bits and is several times as fast. Validation and translation compute in float32.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if is_allowed else "highest")
        torch.backends.cudnn.allow_tf32 = is_allowed


def autocast(
    device: torch.device, dtype: torch.dtype, caches_weights: bool = True
) -> AbstractContextManager[object]:
    """Matrix products in `dtype`, sums and norms in float32; weights stay float32. With `caches_weights` a
    weight that is used several times is cast once, and the gradients of its uses are summed in `dtype`.
    """
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, dtype, cache_enabled=caches_weights)


def keep_freed_memory(one_heap: bool = False) -> None:
    """Keep freed memory in the process (mallopt of glibc) instead of returning it to the system and faulting
    it in again.

    Every update frees and allocates the same large arrays; on two cores this saves 10 % of the time
    (docs/measurements/performance.md). oneDNN caches a primitive per shape. These would fragment the heap,
    which then grows without bound (7 GB after 7,500 updates in bfloat16); so its cache is kept small, at no
    measurable cost. `one_heap` makes all threads share one heap: 5 % faster if they translate in parallel. No
    effect with other C libraries than glibc.
    """
    if platform.libc_ver()[0] == "glibc":
        # Read when the first product is computed, not when torch is imported.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
        os.environ.setdefault("LRU_CACHE_CAPACITY", "1")
        libc = ctypes.CDLL(None)
        trim_threshold, mmap_threshold = -1, -3  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD of malloc.h
        # glibc before 2.35 accepts at most 32 MB here. If it accepts neither value, the trim threshold alone
        # would only do harm.
        if libc.mallopt(mmap_threshold, 1 << 30) or libc.mallopt(mmap_threshold, 32 << 20):
            libc.mallopt(trim_threshold, (1 << 31) - 1)
        if one_heap:
            arena_max = -8  # M_ARENA_MAX
            libc.mallopt(arena_max, 1)


# Words of errors that are no torch.OutOfMemoryError: the CPU's allocator, MPS, CUDA outside torch's
# allocator, and the libraries that ask CUDA for workspaces themselves.
_OUT_OF_MEMORY = (
    "can't allocate memory",
    "MPS backend out of memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an allocation failed, on whichever device."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def is_compiler_error(error: BaseException) -> bool:
    """True if torch.compile failed: in the compiler, or when Triton builds its launcher, which needs a C
    compiler and Python.h.
    """
    if isinstance(error, subprocess.CalledProcessError) or "Failed to find C compiler" in str(error):
        return True
    return any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__)


def is_asynchronous(device: torch.device) -> bool:
    """True if a call may return before the device has computed its result; reading the result waits."""
    return device.type != "cpu"


# Fraction of the free memory to use; the rest is for other processes, fragmentation and validation.
_SHARE = 0.8


def free_memory(device: torch.device) -> int:
    """Bytes an update may use, including those this process already holds."""
    if device.type == "cuda":
        return int(_SHARE * (torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)))
    # Windows tells nothing of this kind to Python: 8 GB are supposed.
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))  # they measure at the same time
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable"):
            free = int(line.split()[1]) * 1024
    for most, used in _limits():
        free = min(free, max(0, most - used))
    return int(_SHARE * (free / ranks_here + _of_status("VmRSS")))


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
    if peak := _of_status("VmHWM"):
        return peak
    try:
        import resource
    except ImportError:  # on Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


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
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        if controllers:  # the first version of control groups
            root, names = f"{root}/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        folder = Path(f"{root}{path}")
        for parent in (folder, *folder.parents):
            most, used = ("".join(_lines(f"{parent}/{name}")) for name in names)
            if most.isdecimal() and used.isdecimal():
                stat = dict(line.split(" ", 1) for line in _lines(f"{parent}/memory.stat") if " " in line)
                cached = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
                # The kernel frees cached files first: they do not count as used.
                yield (int(most), max(0, int(used) - int(cached)))


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").rstrip("\n").split("\n")
    except OSError:
        return []
