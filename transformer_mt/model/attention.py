"""Attention: softmax(Q Kᵀ / sqrt(d_k)) V, in many heads.

Letters: B sentences, T queries, S keys, D width, H heads, K head width (D = H x K).
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.dropout import dropout as drop
from transformer_mt.model.masks import Positions
from transformer_mt.model.recorder import AttentionRecorder


def plain_attention(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The formula as the paper writes it (equation 1): (values BHTK, weights BHTS).

    Slow and plain on purpose: it is what the fused path is tested against, and what gives the weights. A
    query that may attend to nothing gets zeros.
    """
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.size(-1))
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, torch.finfo(scores_BHTS.dtype).min)
    weights_BHTS = scores_BHTS.softmax(dim=-1)
    if mask is not None:
        weights_BHTS = weights_BHTS.masked_fill(~mask, 0.0)
    return weights_BHTS @ v_BHSK, weights_BHTS


def fused_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """The same values as `plain_attention`, by torch's fused kernels; `causal` lets query t see keys up to t.
    -> BHTK

    Each query must have at least one visible key. Exception: during decoding a sentence may be empty; its
    output is zero.
    """
    if q_BHTK.device.type == "cpu" and (q_BHTK.dtype == torch.bfloat16 or q_BHTK.size(-2) <= _FEW_QUERIES):
        return _attention_by_products(q_BHTK, k_BHSK, v_BHSK, mask, dropout, causal)
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, mask, dropout, is_causal=causal)


# One decoding step of a beam: on a CPU two plain products are twice as fast as the fused kernel for so few
# queries.
_FEW_QUERIES = 8


def _attention_by_products(
    q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, mask: Tensor | None, dropout: float, causal: bool
) -> Tensor:
    """Plain products with the softmax in float32. In bfloat16 on a CPU, for 16 to 256 tokens, forward and
    backward are 1.5 to 2.5 times as fast as torch's fused kernel in float32, which is six times as fast as
    that kernel in bfloat16.
    """
    T, S = q_BHTK.size(-2), k_BHSK.size(-2)
    if causal:
        mask = torch.ones(T, S, dtype=torch.bool).tril()
    scores_BHTS = (q_BHTK / math.sqrt(q_BHTK.size(-1))) @ k_BHSK.transpose(-2, -1)
    if mask is not None:
        scores_BHTS = scores_BHTS.masked_fill(~mask, torch.finfo(scores_BHTS.dtype).min)
    weights_BHTS = scores_BHTS.softmax(dim=-1, dtype=torch.promote_types(scores_BHTS.dtype, torch.float32))
    if mask is not None and T <= _FEW_QUERIES:
        weights_BHTS = weights_BHTS.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return drop(weights_BHTS, dropout).to(v_BHSK.dtype) @ v_BHSK


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 .. head_H) W^O (paper, section 3.2.2).

    Keys and values are made apart from the queries, so that a decoder can keep them from step to step.
    """

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"`num_heads` must divide `d_model` ({d_model}), but is {num_heads}.")
        self.num_heads = num_heads
        self.dropout = dropout
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def keys_values(self, x_BSD: Tensor, positions_S: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The (keys BHSK, values BHSK) of the inputs, whose positions are 0, 1, 2 ... or `positions_S`."""
        return self._split(self.key(x_BSD)), self._split(self.value(x_BSD))

    def forward(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Positions | None = None,
        recorder: AttentionRecorder | None = None,
    ) -> Tensor:
        """Each x attends to the keys that `mask` (True = may) or `causal` (query t sees keys up to t) allows.
        -> BTD

        `positions` are those of queries and keys if they are not 0, 1, 2 ...; only variants use them.
        """
        self._record(recorder, x_BTD, k_BHSK, v_BHSK, mask, causal, positions)
        dropout = self.dropout if self.training else 0.0
        heads_BHTK = fused_attention(self._split(self.query(x_BTD)), k_BHSK, v_BHSK, mask, dropout, causal)
        return self.output(self._join(heads_BHTK))

    def weights(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Positions | None = None,
    ) -> Tensor:
        """The attention weights (B, H, T, S) of `forward` with the same arguments.

        Rows sum to one; not so under a Gaussian (local_p), and where nothing may be seen they are zero.
        """
        if causal:
            mask = torch.ones(x_BTD.size(1), k_BHSK.size(2), dtype=torch.bool, device=x_BTD.device).tril()
        return plain_attention(self._split(self.query(x_BTD)), k_BHSK, v_BHSK, mask)[1]

    def _record(self, recorder: AttentionRecorder | None, *arguments: Any) -> None:
        if recorder is not None and recorder.wants(self):
            recorder.add(self, self.weights(*arguments))

    def _split(self, x_BTD: Tensor) -> Tensor:
        # (B, T, D) -> (B, T, H, K) -> (B, H, T, K)
        B, T, D = x_BTD.shape
        return x_BTD.view(B, T, self.num_heads, D // self.num_heads).transpose(1, 2)

    def _join(self, x_BHTK: Tensor) -> Tensor:
        # (B, H, T, K) -> (B, T, H, K) -> (B, T, D)
        B, H, T, K = x_BHTK.shape
        return x_BHTK.transpose(1, 2).reshape(B, T, H * K)
