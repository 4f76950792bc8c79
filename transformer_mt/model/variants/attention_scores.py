"""Attention scores of queries and keys: one class per kind, all with the same two methods.

Letters: B sentences, H heads, T queries, S keys, K head width. `score(q, score.keys(k))` computes from
q (B, H, T, K) and k (B, H, S, K) the scores (B, H, T, S), which softmax turns into weights.
"""

import math
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class AttentionScore(nn.Module):
    """The base of all kinds. A kind with a section `Settings` gets an instance of it as `settings`."""

    rotary: ClassVar[bool] = False
    """Goes with rotary positions: depends only on the dot products and the lengths of queries and keys."""
    relative: ClassVar[bool] = False
    """Goes with relative positions: is linear in the keys."""
    grouped_heads: ClassVar[bool] = False
    """Goes with `model.num_kv_heads`: has no weights for the keys of each head."""
    transformer: ClassVar[bool] = True
    """Goes with `model.kind: transformer`, not only with recurrent."""
    bounded: ClassVar[bool] = False
    """Has weights for each of data.max_length source positions, and no more."""

    def __init__(self, num_heads: int = 1, head_width: int = 1) -> None:
        super().__init__()

    @classmethod
    def of(cls, num_heads: int, head_width: int, max_length: int, **settings: Any) -> "AttentionScore":
        """Build a score for sources of up to `max_length` tokens."""
        return cls(num_heads, head_width, **settings)

    def keys(self, k_BHSK: Tensor) -> Tensor:
        """The part of the score that depends only on the keys: computed once, cached during decoding."""
        return k_BHSK


class ScaledDot(AttentionScore):
    """q · k / sqrt(K) (Vaswani et al. 2017, equation 1). The one kind that torch's fused kernels compute."""

    rotary = relative = grouped_heads = True

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.size(-1))


class Dot(AttentionScore):
    """q · k (Luong et al. 2015, section 3.1, "dot"), without the scale that avoids small gradients of the
    softmax.
    """

    rotary = relative = grouped_heads = True

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return q_BHTK @ k_BHSK.transpose(-2, -1)


class General(AttentionScore):
    """qᵀ W k (Luong et al. 2015, section 3.1, "general"), with a W for each head."""

    def __init__(self, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.weight_HKK = nn.Parameter(torch.empty(num_heads, head_width, head_width))
        for head in self.weight_HKK.data:
            nn.init.xavier_uniform_(head)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        return q_BHTK @ self.weight_HKK.to(q_BHTK.dtype) @ k_BHSK.transpose(-2, -1)


class Additive(AttentionScore):
    """vᵀ tanh(W_q q + W_k k) (Bahdanau et al. 2015, appendix A.1.2), with v, W_q and W_k for each head."""

    def __init__(self, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.query_HKK = nn.Parameter(torch.empty(num_heads, head_width, head_width))
        self.key_HKK = nn.Parameter(torch.empty(num_heads, head_width, head_width))
        self.v_HK = nn.Parameter(torch.empty(num_heads, head_width))
        for weights in (self.query_HKK, self.key_HKK):
            for head in weights.data:
                nn.init.xavier_uniform_(head)
        nn.init.uniform_(self.v_HK, -(head_width**-0.5), head_width**-0.5)

    def keys(self, k_BHSK: Tensor) -> Tensor:
        return k_BHSK @ self.key_HKK.to(k_BHSK.dtype)

    def forward(self, q_BHTK: Tensor, k: Tensor) -> Tensor:
        return _additive_score(self.v_HK, q_BHTK @ self.query_HKK.to(q_BHTK.dtype), k)


def _additive_score(v_HK: Tensor, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    """The scores vᵀ tanh(q + k) of all queries and keys, which are already multiplied by their matrices."""
    v = v_HK.to(q_BHTK.dtype)[:, None, :, None]  # (H, 1, K, 1)
    together = torch.tanh(q_BHTK[:, :, :, None] + k_BHSK[:, :, None])  # (B, H, T, S, K)
    return (together @ v).squeeze(-1)


class Cosine(AttentionScore):
    """g · cos(q, k), with a learned g for each head instead of 1 / sqrt(K) (Henry et al. 2020, equation
    3).
    """

    rotary = True

    def __init__(self, num_heads: int, head_width: int = 1) -> None:
        super().__init__()
        self.scale_H = nn.Parameter(torch.full((num_heads,), 10.0))

    def keys(self, k_BHSK: Tensor) -> Tensor:
        return F.normalize(k_BHSK, dim=-1)

    def forward(self, q_BHTK: Tensor, k: Tensor) -> Tensor:
        q = F.normalize(q_BHTK, dim=-1)
        return self.scale_H.to(q.dtype)[:, None, None] * (q @ k.transpose(-2, -1))


class Euclidean(AttentionScore):
    """-|q - k|² / (2 sqrt(K)): the scaled dot product minus (|q|² + |k|²) / (2 sqrt(K))."""

    rotary = grouped_heads = True

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        squares_q = q_BHTK.square().sum(dim=-1)[..., None]
        squares_k = k_BHSK.square().sum(dim=-1)[..., None, :]
        dots = q_BHTK @ k_BHSK.transpose(-2, -1)
        return (dots - (squares_q + squares_k) / 2) / math.sqrt(q_BHTK.size(-1))


class Concat(AttentionScore):
    """vᵀ tanh(W [q; k]) (Luong et al. 2015, section 3.1, "concat"), with v and W for each head: Bahdanau's
    function, whose two matrices are here the halves of one.
    """

    transformer = False

    def __init__(self, num_heads: int, head_width: int) -> None:
        super().__init__()
        self.weight_HKK = nn.Parameter(torch.empty(num_heads, 2 * head_width, head_width))
        self.v_HK = nn.Parameter(torch.empty(num_heads, head_width))
        for head in self.weight_HKK.data:
            nn.init.xavier_uniform_(head)
        nn.init.uniform_(self.v_HK, -(head_width**-0.5), head_width**-0.5)

    def keys(self, k_BHSK: Tensor) -> Tensor:
        # W [q; k] is a sum of two products
        return k_BHSK @ self.weight_HKK[:, k_BHSK.size(-1) :].to(k_BHSK.dtype)

    def forward(self, q_BHTK: Tensor, k: Tensor) -> Tensor:
        return _additive_score(self.v_HK, q_BHTK @ self.weight_HKK[:, : q_BHTK.size(-1)].to(q_BHTK.dtype), k)


class Location(AttentionScore):
    """W q: one score per source position, independent of the key there (Luong et al. 2015, equation 8)."""

    transformer, bounded = False, True

    def __init__(self, num_heads: int, head_width: int, max_length: int) -> None:
        super().__init__()
        self.weight_HKL = nn.Parameter(torch.empty(num_heads, head_width, max_length))
        for head in self.weight_HKL.data:
            nn.init.xavier_uniform_(head)

    @classmethod
    def of(cls, num_heads: int, head_width: int, max_length: int, **settings: Any) -> "Location":
        return cls(num_heads, head_width, max_length)

    def forward(self, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
        S, most = k_BHSK.size(2), self.weight_HKL.size(2)
        if most < S:
            raise ValueError(
                f"the source must have at most {most} tokens, but has {S}; the model was built with "
                f"`data.max_length` {most}"
            )
        return q_BHTK @ self.weight_HKL[..., :S].to(q_BHTK.dtype)
