"""Choosing an engine's device."""

import ctranslate2
import pytest

from transformer_mt.companions.exchange import ctranslate2_engine
from transformer_mt.companions.exchange.ctranslate2_engine import choose_device_name
from transformer_mt.config import DecodeConfig
from transformer_mt.errors import InputError
from transformer_mt.messages import say_once


@pytest.fixture
def gpu(monkeypatch):
    """CTranslate2 sees a GPU; this machine has no CUDA library."""
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda kind: {"float32"})
    say_once.cache_clear()


def test_a_gpu_without_its_library_is_not_used(gpu, said):
    assert [choose_device_name("auto", None), choose_device_name("auto", None)] == ["cpu", "cpu"]
    assert len(said) == 1
    assert said[0].startswith("note: translating on the CPU, because CTranslate2 ")
    assert said[0].endswith(
        "needs libcublas.so.12 to use the GPU: pip install 'transformer-mt[ctranslate2-cuda]'"
    )
    assert choose_device_name("cpu", None) == "cpu"
    with pytest.raises(
        InputError, match=r"^CTranslate2 \S+ needs libcublas.so.12 to use the GPU: pip install"
    ):
        choose_device_name("cuda", None)


def test_the_library_of_a_package_is_loaded_before_ctranslate2_looks_for_it(gpu, said, monkeypatch, tmp_path):
    loaded = []

    def load(name, mode):
        if "/" not in name:
            raise OSError(f"{name}: cannot open shared object file")
        loaded.append(name)

    monkeypatch.setattr(ctranslate2_engine.ctypes, "CDLL", load)
    (tmp_path / "nvidia").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert choose_device_name("auto", None) == "cuda" and not said
    folder = tmp_path / "nvidia" / "cublas" / "lib"
    assert loaded == [str(folder / "libcublasLt.so.12"), str(folder / "libcublas.so.12")]


def test_a_batch_is_as_large_as_the_device():
    assert DecodeConfig().batch_budget() == 8192
    of_gpus = [DecodeConfig().batch_budget(gb * 10**9, 32_000) for gb in (4, 8, 24, 80)]
    assert of_gpus == [8192, 15_625, 46_875, 156_250]
    assert [DecodeConfig().batch_budget(80 * 10**9, size) for size in (8000, 256_000)] == [2**18, 19_531]
    assert DecodeConfig(batch_tokens=100).batch_budget(80 * 2**30) == 100
