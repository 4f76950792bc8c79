"""The device, the precision, and memory settings of the process."""

import ctypes
import os
import platform
import re
from contextlib import AbstractContextManager, nullcontext

import torch

from transformer_mt.errors import InputError


def choose_device(name: str) -> torch.device:
    """The device called `name`; `auto` is the first GPU, else the CPU. Under torchrun each local rank has its
    own GPU.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0)) if int(os.environ.get("WORLD_SIZE", 1)) > 1 else None
    if name == "auto":
        if torch.cuda.is_available():
            name = "cuda"
        else:
            return torch.device("mps" if torch.backends.mps.is_available() and local_rank is None else "cpu")
    if not re.fullmatch(r"cpu|cuda(:\d{1,2})?|mps", name):
        raise InputError(f"the device must be auto, cpu, cuda, cuda:N or mps, but is {name}")
    if ":" in name and local_rank is not None and name != f"cuda:{local_rank}":
        raise InputError(
            f"the device must be cuda with several processes, each of which takes its own GPU, but is {name}"
        )
    device = (
        torch.device("cuda", local_rank) if name == "cuda" and local_rank is not None else torch.device(name)
    )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"the device must exist, but {device} does not: this machine has {torch.cuda.device_count()} "
            "CUDA GPUs; use cpu"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("the device must exist, but mps does not; use cpu")
    return device


def use_device(device: torch.device) -> None:
    """Let a numbered GPU be the current one: libraries such as Triton allocate there."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


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
        if any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16")):
            return torch.bfloat16
    return torch.float32


def allow_tf32(device: torch.device) -> None:
    """Let float32 matrix products of this process use TensorFloat-32 on an NVIDIA GPU: a mantissa of 10 bits,
    and several times the speed. Validation and translation compute in float32.
    """
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def autocast(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Matrix products in `dtype`, sums and norms in float32; weights stay float32."""
    return nullcontext() if dtype == torch.float32 else torch.autocast(device.type, dtype)


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
    """Whether an allocation failed, on whichever device."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def is_compiler_error(error: RuntimeError) -> bool:
    """Whether torch.compile failed, as without a C++ compiler."""
    return any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__)
