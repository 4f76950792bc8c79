"""Tensors that are computed by code written for a CPU: other chunks, masks and kernels are faster there."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

_is_used = ContextVar("uses_cpu_code", default=True)


def uses_cpu_code(x: Tensor) -> bool:
    # The compiler does not know context variables, and nothing compiled is counted.
    return x.device.type == "cpu" and (torch.compiler.is_compiling() or _is_used.get())


def can_be_read(x: Tensor) -> bool:
    """True if a number of `x` is there when it is asked for: a GPU is waited for, and what is compiled or
    counted has none.
    """
    return x.device.type == "cpu" and not (torch.compiler.is_compiling() or isinstance(x, FakeTensor))


@contextmanager
def without_cpu_code() -> Iterator[None]:
    """Within it, this thread computes on a CPU what a GPU would, to count it."""
    token = _is_used.set(False)
    try:
        yield
    finally:
        _is_used.reset(token)
