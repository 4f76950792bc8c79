"""The values of `plain_attention` (attention.py), computed faster: siblings with its signature.

Letters: B sentences, T queries, S keys, H heads, K head width. Each query must have at least one visible key.
"""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.model.kernels.cpu_code import uses_cpu_code
from transformer_mt.model.kernels.dropout import dropout as drop

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
    """Within it, a GPU of NVIDIA's Hopper or Blackwell computes `fused_attention` by cuDNN's kernels where
    they can: with a mask and rows of 128 they take half the time of the others (docs/measurements/gpu.md).
    Other GPUs were not measured.
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
    """Plain products with the softmax in float32 -> BHTK. In bfloat16 on a CPU, for 16 to 256 tokens, forward
    and backward are 1.5 to 2.5 times as fast as torch's fused kernel in float32, which is six times as fast
    as that kernel in bfloat16.
    """
    T, S = q_BHTK.size(-2), k_BHSK.size(-2)
    if causal:
        mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores_BHTS = (q_BHTK / math.sqrt(q_BHTK.size(-1))) @ k_BHSK.transpose(-2, -1)
    if mask is not None:
        scores_BHTS = torch.where(mask, scores_BHTS, torch.finfo(scores_BHTS.dtype).min)
    weights_BHTS = scores_BHTS.softmax(dim=-1, dtype=torch.promote_types(scores_BHTS.dtype, torch.float32))
    return drop(weights_BHTS, dropout).to(v_BHSK.dtype) @ v_BHSK
