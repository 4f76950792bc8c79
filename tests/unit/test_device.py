""""""

import ctypes
import mmap
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.faults import system_memory
from transformer_mt import device
from transformer_mt import device as device_module
from transformer_mt.device import (
    allow_tf32,
    choose_device,
    choose_precision,
    free_memory,
    is_out_of_memory,
    keep_freed_memory,
    peak_memory,
    use_device,
)
from transformer_mt.errors import InputError
from transformer_mt.messages import say_once
from transformer_mt.processes import usable_cores
from transformer_mt.ranks import Ranks
from transformer_mt.run.early_checks import _refuse_shared_gpu


def test_each_process_takes_its_own_gpu(monkeypatch):
    """Whose name is known too: a trained model is loaded on the device that it was trained on."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(
        InputError, match="the device must be cuda with several processes, each of which takes its own GPU"
    ):
        choose_device("cuda:0")
    assert choose_device("cpu").type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = choose_device("cuda")
    assert own == torch.device("cuda:1") and choose_device(str(own)) == own
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # Slurm may show each task one: number 0
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")


def test_bfloat16_is_chosen_only_where_products_may_use_its_instructions(monkeypatch):
    """oneDNN's slow code for it takes ten times as long."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    assert choose_precision("auto", torch.device("cpu")) == torch.bfloat16
    limits = {"DEFAULT": True, "AVX512_CORE_BF16": True, "avx2": False, "AVX512_CORE_VNNI": False}
    for limit, is_fast in limits.items():
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        found = choose_precision("auto", torch.device("cpu"))
        assert found == (torch.bfloat16 if is_fast else torch.float32), limit


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "cuda:256"])
def test_a_device_that_is_none_is_told(name):
    with pytest.raises(InputError, match=f"must be auto, cpu, cuda, cuda:N or mps, but is {name}"):
        choose_device(name)


def test_too_little_memory_is_recognised_on_every_device_and_no_other_error():
    cpu = "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried ..."
    for error in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be ..."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.06 GB, ...)"),
        RuntimeError(cpu),
    ):
        assert is_out_of_memory(error), error
    for error in (
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        MemoryError("can't allocate memory"),
        ValueError("out of memory"),
    ):
        assert not is_out_of_memory(error), error


@pytest.mark.parametrize("most, mmap_threshold", [(2**31, 2**30), (32 * 2**20, 32 * 2**20), (0, None)])
def test_memory_is_kept_as_far_as_the_c_library_allows(monkeypatch, most, mmap_threshold):
    """Before 2.35 glibc refuses more than 32 MB; the trim threshold alone would freeze the other
    at 128 KB.
    """
    kept = {}

    class Library:
        def mallopt(self, name, value):
            if name == -3 and value > most:
                return 0
            kept[name] = value
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.28"))
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    monkeypatch.setenv("LRU_CACHE_CAPACITY", "1")
    keep_freed_memory()
    assert kept == ({-3: mmap_threshold, -1: 2**31 - 1} if mmap_threshold else {})


def test_one_of_several_gpus_becomes_the_current_device_when_it_is_used(monkeypatch):
    """Libraries such as Triton allocate on the current device. Looking whether it is there takes no memory of
    it. cuDNN's attention is off: it plans for every shape, and there are thousands.
    """
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    compiled_for(monkeypatch, "sm_90", capability=(9, 0))
    device = choose_device("cuda:1")
    assert device == torch.device("cuda:1") and current == []
    use_device(device)
    use_device(torch.device("cpu"))
    assert current == [device]
    assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.mem_efficient_sdp_enabled()


def compiled_for(monkeypatch, *architectures, capability):
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(architectures))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")


def test_a_gpu_torch_has_no_code_for_is_refused(monkeypatch):
    compiled_for(monkeypatch, "sm_75", "sm_80", "sm_90a", "compute_120", capability=(7, 0))
    refused = r"torch \S+ has no code for Tesla V100 \(capability 7.0\); use cpu, a newer GPU, or an"
    with pytest.raises(InputError, match=refused):
        use_device(torch.device("cuda"))


def test_code_for_an_older_minor_or_for_all_newer_and_any_of_amds_is_used(monkeypatch):
    for capability in ((7, 5), (8, 9), (9, 0), (13, 1)):
        compiled_for(monkeypatch, "sm_75", "sm_80", "sm_90a", "compute_120", capability=capability)
        use_device(torch.device("cuda"))
    compiled_for(monkeypatch, "gfx90a", "gfx1100", capability=(9, 0))
    use_device(torch.device("cuda"))


DRIVER = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024
GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)
"""


@pytest.mark.parametrize(
    "cuda, problem",
    [
        (
            "13.0",
            r"torch \S+ finds no GPU by NVIDIA's driver 535.183.01; its CUDA 13.0 needs driver 580 or newer",
        ),
        (None, r"torch \S+ is built for CPUs only, and NVIDIA's driver 535.183.01 is here: install"),
    ],
)
def test_a_driver_that_torch_cannot_use_is_told(monkeypatch, tmp_path, said, cuda, problem):
    (tmp_path / "version").write_text(DRIVER)
    monkeypatch.setattr(device_module, "_DRIVER_FILE", tmp_path / "version")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    say_once.cache_clear()
    assert [choose_device("auto").type, choose_device("auto").type] == ["cpu", "cpu"]
    assert len(said) == 1 and re.match(f"note: computing on the CPU, because {problem}", said[0])
    with pytest.raises(InputError, match=f"there is no cuda: {problem}"):
        choose_device("cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    say_once.cache_clear()
    assert choose_device("auto").type == "cpu" and len(said) == 1


def test_ranks_must_not_share_a_gpu():
    class Gathered(Ranks):
        def gather(self, value):
            return ["host a", "host b", "other a", value]

    _refuse_shared_gpu("other b", Gathered(3, 4))
    with pytest.raises(
        InputError, match="but ranks 1 and 3 have the same, host b; start as many processes as"
    ):
        _refuse_shared_gpu("host b", Gathered(3, 4))


def test_cores_that_are_not_ours_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64


def test_float32_products_use_tf32_on_a_gpu_alone(monkeypatch):
    found = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", found.append)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    allow_tf32(torch.device("cpu"))
    allow_tf32(torch.device("mps"))
    assert found == [] and not torch.backends.cudnn.allow_tf32
    allow_tf32(torch.device("cuda"))
    assert found == ["high"] and torch.backends.cudnn.allow_tf32
    allow_tf32(torch.device("cuda"), False)
    assert found == ["high", "highest"] and not torch.backends.cudnn.allow_tf32


# The memory a device has for this process.


def test_ranks_of_one_machine_share_its_free_memory(monkeypatch):
    gigabyte, files = 2**30, {"/proc/meminfo": ["MemTotal: 1 kB", f"MemAvailable:  {8 * 2**20} kB"]}
    system_memory(monkeypatch, files, resident=gigabyte)
    assert free_memory(torch.device("cpu")) == int(0.8 * 9 * gigabyte)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert free_memory(torch.device("cpu")) == int(0.8 * 3 * gigabyte)


OLD_NAMES = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


@pytest.mark.parametrize(
    "group, root, names",
    [
        ("0::/job/step", "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")),
        ("4:cpu,memory:/job/step", "/sys/fs/cgroup/memory", OLD_NAMES),
    ],
)
@pytest.mark.parametrize("place", ["", "/job", "/job/step"])
def test_memory_that_a_control_group_forbids_is_not_free(monkeypatch, group, root, names, place):
    """A container's, a service's or a batch job's limit, its own or of a group around it."""
    gigabyte = 2**30
    files = {
        "/proc/meminfo": [f"MemAvailable:  {8 * 2**20} kB"],
        "/proc/self/cgroup": ["2:pids:/elsewhere", group],
    }
    system_memory(monkeypatch, files, resident=gigabyte)
    most, used, cached = names
    files |= {f"{root}{place}/{most}": [str(6 * gigabyte)], f"{root}{place}/{used}": [str(3 * gigabyte)]}
    assert free_memory(torch.device("cpu")) == int(0.8 * 4 * gigabyte)
    files[f"{root}{place}/memory.stat"] = ["anon 17", f"{cached} {gigabyte}"]
    assert free_memory(torch.device("cpu")) == int(0.8 * 5 * gigabyte)
    files[f"{root}{place}/{most}"] = ["max"]
    assert free_memory(torch.device("cpu")) == int(0.8 * 9 * gigabyte)


def test_what_a_control_group_says_in_other_words_stops_nothing(monkeypatch):
    files = {
        "/proc/meminfo": [f"MemAvailable:  {2**20} kB"],
        "/proc/self/cgroup": ["", "1", "0::/a:b"],
        "/sys/fs/cgroup/a:b/memory.max": ["many"],
        "/sys/fs/cgroup/memory.max": [str(2**40)],
        "/sys/fs/cgroup/memory.current": ["5"],
        "/sys/fs/cgroup/memory.stat": ["", "nonsense", "inactive_file 7"],
    }
    system_memory(monkeypatch, files)
    assert free_memory(torch.device("cpu")) == int(0.8 * 2**30)


LARGE = 2**28


def touched():
    """So much memory, which goes back to the system at its end, whatever malloc keeps."""
    memory = np.frombuffer(mmap.mmap(-1, LARGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    memory.fill(1)
    return memory


def test_memory_that_was_given_back_is_not_counted_as_free(monkeypatch):
    """The peak of preparing the data, say: the process does not hold it any more."""
    usual = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, *w, **k: usual(path, *w, **k) if "self/stat" in str(path) else ""
    )
    cpu = torch.device("cpu")
    before = free_memory(cpu)
    large = touched()
    held = free_memory(cpu)
    del large
    assert held - before > 0.7 * LARGE
    assert abs(free_memory(cpu) - before) < 0.1 * LARGE


def test_the_peak_counts_from_its_reset():
    cpu = torch.device("cpu")
    touched()
    high = peak_memory(cpu)
    assert 10 * 2**20 < high < 100 * 2**30
    device.reset_peak(cpu)
    if (low := peak_memory(cpu)) == high:
        pytest.skip("this system does not reset the peak of a process")
    assert high - low > 0.7 * LARGE
    touched()
    assert peak_memory(cpu) - low > 0.3 * LARGE
