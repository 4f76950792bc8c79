"""Multi-head attention (paper, section 3.2) and normalisation."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.fast_attention import dropout as drop
from transformer_mt.model.fast_attention import fast_attention
from transformer_mt.model.masks import Positions

LayerNorm = nn.LayerNorm
"""The paper's norm (Ba et al. 2016)."""


class RMSNorm(nn.Module):
    """x / sqrt(mean of x² + eps) times a weight (Zhang and Sennrich 2019, equation 4): LayerNorm without the
    mean and the bias. Computed in float32, given back in the dtype of x.
    """

    eps = 1e-5
    """The same as LayerNorm's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.eps)


class AttentionRecorder:
    """Collects the weights of some attentions during the calls it is given to.

    It is an argument, so that several threads can record one model. The weights are computed by the plain
    formula in addition to the fused path: without a recorder nothing is slower.
    """

    def __init__(self, *attentions: nn.Module) -> None:
        self._seen: dict[nn.Module, list[Tensor]] = {attention: [] for attention in attentions}

    def wants(self, attention: nn.Module) -> bool:
        return attention in self._seen

    def add(self, attention: nn.Module, weights_BHTS: Tensor) -> None:
        self._seen[attention].append(weights_BHTS)

    def of(self, attention: nn.Module) -> list[Tensor]:
        """The weights (B, H, T, S) of each of its calls, oldest first."""
        return self._seen[attention]


def attention_weights(q_BHTK: Tensor, k_BHSK: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d_k)) -> BHTS. A query that may attend to nothing has zeros."""
    if causal:
        T, S = q_BHTK.size(-2), k_BHSK.size(-2)
        mask = torch.ones(T, S, dtype=torch.bool, device=q_BHTK.device).tril()
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-2, -1) / math.sqrt(q_BHTK.size(-1))
    if mask is None:
        return scores_BHTS.softmax(dim=-1)
    scores_BHTS = scores_BHTS.masked_fill(~mask, torch.finfo(scores_BHTS.dtype).min)
    return scores_BHTS.softmax(dim=-1).masked_fill(~mask, 0.0)


def plain_attention(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    mask: Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
) -> Tensor:
    """The formula as the paper writes it (equation 1) -> BHTK. It is the reference that the tests compare
    `fast_attention` with; its weights are those of the heat maps.
    """
    return drop(attention_weights(q_BHTK, k_BHSK, mask, causal), dropout) @ v_BHSK


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1 .. head_H) W^O (paper, section 3.2.2).

    Keys and values are made apart from the queries, so that a decoder can keep them from step to step.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        num_kv_heads: int | None = None,
        qk_norm: bool = False,
    ) -> None:
        """`num_kv_heads`: heads of keys and values, each for a group of the queries' heads (Ainslie et al.
        2023); default: one for each. `qk_norm`: normalise queries and keys (Henry et al. 2020), by RMSNorm.
        """
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"`num_heads` must divide `d_model` ({d_model}), but is {num_heads}.")
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads or num_heads
        self.dropout = dropout
        head_width = d_model // num_heads
        self.query = self.projection(d_model, d_model)
        self.key = self.projection(d_model, self.num_kv_heads * head_width)
        self.value = self.projection(d_model, self.num_kv_heads * head_width)
        self.output = self.projection(d_model, d_model)
        self.query_norm, self.key_norm = (RMSNorm(head_width) if qk_norm else None for _ in range(2))

    def projection(self, d_model: int, width: int) -> nn.Linear:
        """One of W^Q, W^K, W^V and W^O, of all heads together."""
        return nn.Linear(d_model, width)

    def keys_values(self, x_BSD: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        """The (keys BHSK, values BHSK) of the inputs, at 0, 1, 2 ... or at `positions.queries`."""
        k_BHSK, v_BHSK = (self._split(part(x_BSD), self.num_kv_heads) for part in (self.key, self.value))
        return k_BHSK if self.key_norm is None else self.key_norm(k_BHSK), v_BHSK

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
        if recorder is not None and recorder.wants(self):
            recorder.add(self, self.weights(x_BTD, k_BHSK, mask, causal, positions))
        dropout = self.dropout if self.training else 0.0
        q_BHTK = self.queries(x_BTD).to(k_BHSK.dtype)
        k_BHSK, v_BHSK = self.for_all_heads(k_BHSK), self.for_all_heads(v_BHSK)
        heads_BHTK = fast_attention(q_BHTK, k_BHSK, v_BHSK, mask, dropout, causal)
        return self._project(heads_BHTK, x_BTD)

    def weights(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Positions | None = None,
    ) -> Tensor:
        """The attention weights (B, H, T, S) of `forward` with the same arguments.

        Rows sum to one, except under a Gaussian (local_p); the row of a query that may see nothing is zero.
        """
        q_BHTK = self.queries(x_BTD).to(k_BHSK.dtype)
        return attention_weights(q_BHTK, self.for_all_heads(k_BHSK), mask, causal)

    def queries(self, x_BTD: Tensor) -> Tensor:
        """BTD -> BHTK"""
        q_BHTK = self._split(self.query(x_BTD), self.num_heads)
        return q_BHTK if self.query_norm is None else self.query_norm(q_BHTK)

    def for_all_heads(self, x_BHSK: Tensor) -> Tensor:
        """Keys or values, with the head of each group repeated for all query heads of the group."""
        groups = self.num_heads // x_BHSK.size(1)
        return x_BHSK if groups == 1 else x_BHSK.repeat_interleave(groups, dim=1)

    def _split(self, x_BTD: Tensor, num_heads: int) -> Tensor:
        # (B, T, D) -> (B, T, H, K) -> (B, H, T, K)
        B, T, D = x_BTD.shape
        return x_BTD.view(B, T, num_heads, D // num_heads).transpose(1, 2)

    def _project(self, heads_BHTK: Tensor, x_BTD: Tensor) -> Tensor:
        """Concat(head_1 .. head_H) W^O in x's dtype; a search may keep keys in a wider one."""
        if heads_BHTK.dtype.itemsize > x_BTD.dtype.itemsize:
            heads_BHTK = heads_BHTK.to(x_BTD.dtype)
        # (B, H, T, K) -> (B, T, H, K) -> (B, T, D)
        return self.output(heads_BHTK.transpose(1, 2).flatten(2))
