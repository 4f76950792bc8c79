"""Dropout with masks that are cheap on a CPU."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.kernels.cpu_code import uses_cpu_code

_of_this_thread = threading.local()


@contextmanager
def dropout_generator(generator: torch.Generator | None) -> Iterator[None]:
    """Within it, masks on a CPU that this thread makes come from this generator instead of torch's own, which
    all threads share; None: from torch's.
    """
    _of_this_thread.generator = generator
    try:
        yield
    finally:
        _of_this_thread.generator = None


class _RandomBitsDropout(torch.autograd.Function):
    """Dropout on a CPU: one random 64-bit number gives four elements of the mask. This takes 1/100 of a small
    model's update; `bernoulli_` would take 1/8.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        threshold = min(round(p * 2**15), 2**15 - 1)
        numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64)
        numbers.random_(generator=getattr(_of_this_thread, "generator", None))
        # random_() fills 63 of the 64 bits; without the highest of each, all four parts are alike.
        bits = numbers.view(torch.int16)[: x.numel()].view(x.shape).bitwise_and_(2**15 - 1)
        kept = torch.ge(bits, threshold, out=torch.empty(x.shape, dtype=torch.uint8))
        ctx.save_for_backward(kept)
        ctx.scale = 2**15 / (2**15 - threshold)
        return (x * kept).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return (grads[0] * kept).mul_(ctx.scale), None


def dropout(x: Tensor, p: float) -> Tensor:
    """Each element is zero with probability `p` (in steps of 2^-15 on a CPU), else divided by 1 - p."""
    if p == 0.0:
        return x
    if not torch.compiler.is_compiling() and uses_cpu_code(x):
        return _RandomBitsDropout.apply(x, p)
    return F.dropout(x, p)


class Dropout(nn.Module):
    """Applies `dropout` in training mode; the identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x
