import ctypes
import os

import pytest
import torch

from transformer_mt.cpu import usable_cores
from transformer_mt.device import allow_tf32, choose_device, is_out_of_memory, keep_freed_memory, use_device
from transformer_mt.errors import InputError


def test_processes_must_not_share_a_gpu(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(
        InputError, match="the device must be cuda with several processes, each of which takes its own GPU"
    ):
        choose_device("cuda:0")
    assert choose_device("cpu").type == "cpu"


def test_the_gpu_of_a_process_is_known_by_its_name_too(monkeypatch):
    """A trained model is loaded on the device that it was trained on."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    own = choose_device("cuda")
    assert own == torch.device("cuda:1") and choose_device(str(own)) == own


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:1", "cuda:256"])
def test_a_device_that_is_none_is_told(name):
    with pytest.raises(InputError, match=f"must be auto, cpu, cuda, cuda:N or mps, but is {name}"):
        choose_device(name)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        torch.AcceleratorError(
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported ..."
        ),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("MPS backend out of memory (MPS allocated: 9.06 GB, ...)"),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried ..."
        ),
    ],
    ids=lambda error: str(error)[:40],
)
def test_too_little_memory_is_recognised_on_every_device(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"),
        MemoryError("can't allocate memory"),
        ValueError("out of memory"),
    ],
    ids=repr,
)
def test_other_errors_are_not_taken_for_too_little_memory(error):
    assert not is_out_of_memory(error)


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
    it.
    """
    current = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    device = choose_device("cuda:1")
    assert device == torch.device("cuda:1") and current == []
    use_device(device)
    use_device(torch.device("cpu"))
    assert current == [device]


def test_cores_that_are_not_ours_do_not_count(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5}, raising=False)
    assert usable_cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert usable_cores() == 64


def test_float32_products_use_tf32_on_a_gpu_alone(monkeypatch):
    found = []
    monkeypatch.setattr(torch, "set_float32_matmul_precision", found.append)
    allow_tf32(torch.device("cpu"))
    allow_tf32(torch.device("mps"))
    assert found == []
    allow_tf32(torch.device("cuda"))
    assert found == ["high"]
