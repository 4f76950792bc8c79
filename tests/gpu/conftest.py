"""Tests of what only a CUDA GPU does: `make gpu-check PART=tests`.

GPU_CHECK_DEVICE=cpu runs them on the CPU, to find mistakes in the tests themselves; what needs CUDA is then
skipped.
"""

import os

import pytest
import torch

from transformer_mt.device import use_device


def pytest_collection_modifyitems(items):
    for item in items:
        if "tests/gpu/" in str(item.path).replace(os.sep, "/"):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def device():
    name = os.environ.get("GPU_CHECK_DEVICE", "cuda")
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    use_device(torch.device(name))  # as each command does
    return torch.device(name)


@pytest.fixture
def cuda(device):
    """The device, where the test has no meaning on another one."""
    if device.type != "cuda":
        pytest.skip("needs a CUDA GPU")
    return device


@pytest.fixture(autouse=True)
def exact_products(monkeypatch):
    """No TF32: results are compared with those of the CPU."""
    torch.set_float32_matmul_precision("highest")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)
