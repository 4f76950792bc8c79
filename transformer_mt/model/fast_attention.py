"""Attention and dropout, faster than the plain formulas; for some operations a CPU has code of its own.

Letters: B sentences, T queries, S keys, H heads, K head width. Each query must have at least one visible key.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.attention import SDPBackend, sdpa_kernel

_is_used = ContextVar("uses_cpu_code", default=True)


def uses_cpu_code(x: Tensor) -> bool:
    # torch.compile does not support context variables. It needs none: compiled code is never counted.
    return x.device.type == "cpu" and (torch.compiler.is_compiling() or _is_used.get())


def can_be_read(x: Tensor) -> bool:
    """True if values of `x` can be read at once. A read from a GPU would wait for it, and tensors have no
    values in compiled code or when operations are only counted (FakeTensor).
    """
    return uses_cpu_code(x) and not (torch.compiler.is_compiling() or isinstance(x, FakeTensor))


@contextmanager
def without_cpu_code() -> Iterator[None]:
    """Inside this context, this thread runs the code of a GPU on a CPU, so that its work can be counted."""
    token = _is_used.set(False)
    try:
        yield
    finally:
        _is_used.reset(token)


_of_this_thread = threading.local()


@contextmanager
def dropout_generator(generator: torch.Generator | None) -> Iterator[None]:
    """Inside this context, dropout masks that this thread makes on a CPU come from `generator` instead of
    torch's own generator, which all threads share. None uses torch's own.
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


_drop = dropout  # where a parameter has this name


class Dropout(nn.Module):
    """Applies `dropout` in training mode; the identity in evaluation."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p) if self.training else x


# One decoding step of a beam: on a CPU two plain products are twice as fast as the fused kernel for so few
# queries.
_FEW_QUERIES = 8


def fast_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """The fastest of the siblings for these tensors -> BHTK. `mask`: True = may attend; `causal` lets query t
    see keys up to t.
    """
    by_products = uses_cpu_code(q_BHTK) and (
        q_BHTK.dtype == torch.bfloat16 or q_BHTK.size(-2) <= _FEW_QUERIES
    )
    compute = cpu_attention if by_products else fused_attention
    return compute(q_BHTK, k_BHSK, v_BHSK, mask, dropout, causal)


def prefer_cudnn() -> AbstractContextManager[None]:
    """Inside this context, NVIDIA's Hopper and Blackwell GPUs compute `fused_attention` with cuDNN's kernels
    where these support it. With a mask and rows of 128 they take half the time of the other kernels
    (docs/measurements/gpu.md). Other GPUs were not measured.
    """
    if torch.cuda.get_device_capability()[0] not in (9, 10):
        return nullcontext()
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
    return sdpa_kernel([*order, SDPBackend.MATH], set_priority=True)


def fused_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """By torch's fused kernels -> BHTK."""
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, mask, dropout, is_causal=causal)


def cpu_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """Attention by plain matrix products, with the softmax in float32. Returns BHTK.

    On a CPU, with 16 to 256 tokens, forward and backward in bfloat16 are 1.5 to 2.5 times as fast as torch's
    fused kernel in float32. In bfloat16 the fused kernel takes six times as long as in float32.
    """
    T, S = q_BHTK.size(-2), k_BHSK.size(-2)
    if causal:
        mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores_BHTS = (q_BHTK / math.sqrt(q_BHTK.size(-1))) @ k_BHSK.transpose(-2, -1)
    if mask is not None:
        scores_BHTS = torch.where(mask, scores_BHTS, torch.finfo(scores_BHTS.dtype).min)
    weights_BHTS = scores_BHTS.softmax(dim=-1, dtype=torch.promote_types(scores_BHTS.dtype, torch.float32))
    return _drop(weights_BHTS, dropout).to(v_BHSK.dtype) @ v_BHSK
