"""Attention variants with the interface of MultiHeadAttention: other scores, relative positions, local
windows, hard attention. Written as plain formulas, not for speed; where possible it calls the fused kernels.

Letters: B sentences, T queries, S keys, D width, H heads, K head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.fast_attention import dropout as drop
from transformer_mt.model.fast_attention import fast_attention, fused_attention
from transformer_mt.model.masks import Positions, causal_mask, window_mask
from transformer_mt.model.variants.attention_scores import AttentionScore, ScaledDot
from transformer_mt.model.variants.position_bias import PositionBias


class PredictedCentre(nn.Module):
    """Source position of each query: p = S sigmoid(vᵀ tanh(W h)) (Luong et al. 2015, equation 9)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_model, bias=False)
        self.outer = nn.Linear(d_model, 1, bias=False)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """(B, T) predicted positions in sources of the given lengths."""
        return lengths_B[:, None] * torch.sigmoid(self.outer(torch.tanh(self.inner(x_BTD)))[..., 0].float())


class VariantAttention(MultiHeadAttention):
    """Multi-head attention with one or more of its parts exchanged."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        score: AttentionScore | None = None,
        position_bias: PositionBias | None = None,
        window: int = 0,
        centre: PredictedCentre | None = None,
        hard: bool = False,
        num_kv_heads: int | None = None,
        qk_norm: bool = False,
    ) -> None:
        """`window` w > 0: a query at position t sees the keys at t - w to t + w. With a `centre` it sees
        those around the predicted position, weighted by a Gaussian of standard deviation w / 2 (Luong et al.
        2015, section 3.2). `hard`: a query attends to one key, sampled during training.
        """
        super().__init__(d_model, num_heads, dropout, num_kv_heads, qk_norm)
        self.score = score or ScaledDot()
        self.relation = position_bias or PositionBias()  # the name of its weights in saved models
        self.window, self.centre, self.hard = window, centre, hard
        self.fusable = isinstance(self.score, ScaledDot) and not centre and not hard

    def keys_values(self, x_BSD: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        keys, values = super().keys_values(x_BSD)
        positions = positions or Positions.of(keys.size(2), keys.size(2), keys.device)
        return self.score.keys(self.relation.rotate(keys, positions)), values

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
        positions = positions or Positions.of(x_BTD.size(1), k_BHSK.size(2), x_BTD.device)
        k_BHSK, v_BHSK = self.for_all_heads(k_BHSK), self.for_all_heads(v_BHSK)
        if recorder is not None and recorder.wants(self):
            recorder.add(self, self.weights(x_BTD, k_BHSK, mask, causal, positions))
        dropout = self.dropout if self.training else 0.0
        if self.fusable and self.relation.fusable(v_BHSK):
            heads_BHTK = self._fused(x_BTD, k_BHSK, v_BHSK, mask, causal, positions, dropout)
            return self._project(heads_BHTK, x_BTD)
        weights = drop(self._weights(x_BTD, k_BHSK, mask, causal, positions), dropout)
        heads_BHTK = weights.to(v_BHSK.dtype) @ v_BHSK
        added = self.relation.value_bias(weights, positions)
        if added is not None:
            heads_BHTK = heads_BHTK + added.to(v_BHSK.dtype)
        return self._project(heads_BHTK, x_BTD)

    def _fused(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Tensor | None,
        causal: bool,
        positions: Positions,
        dropout: float,
    ) -> Tensor:
        """Compute the heads (B, H, T, K) with torch's fused kernels."""
        q = self._queries(x_BTD, k_BHSK, positions)
        bias = self.relation.score_bias(self.score, q, positions)
        if bias is None and not self.window:
            return fast_attention(q, k_BHSK, v_BHSK, mask, dropout, causal)
        allowed = self._allowed(mask, causal, positions)
        if allowed is None:
            allowed = torch.ones(1, 1, dtype=torch.bool, device=q.device)
        # For a query without a visible key, a kernel may return the mean of the padding, or NaN. So such a
        # query sees all keys here, and its output is set to zero below, as in the formula.
        blind = ~allowed.any(dim=-1, keepdim=True)
        allowed = allowed | blind
        if bias is None:
            heads_BHTK = fast_attention(q, k_BHSK, v_BHSK, allowed, dropout)
        else:
            bias = bias.to(q.dtype)[None].masked_fill(~allowed, torch.finfo(q.dtype).min)
            heads_BHTK = fused_attention(q, k_BHSK, v_BHSK, bias, dropout)
        return heads_BHTK.masked_fill(blind, 0.0)

    def weights(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        positions: Positions | None = None,
    ) -> Tensor:
        positions = positions or Positions.of(x_BTD.size(1), k_BHSK.size(2), x_BTD.device)
        return self._weights(x_BTD, self.for_all_heads(k_BHSK), mask, causal, positions)

    def _weights(
        self, x_BTD: Tensor, k_BHSK: Tensor, mask: Tensor | None, causal: bool, positions: Positions
    ) -> Tensor:
        q = self._queries(x_BTD, k_BHSK, positions)
        scores_BHTS = self.score(q, k_BHSK).float()
        added = self.relation.score_bias(self.score, q, positions)
        if added is not None:
            scores_BHTS = scores_BHTS + added
        allowed = self._allowed(mask, causal, positions)
        gauss = None
        if self.centre is not None:
            assert mask is not None
            lengths = mask.flatten(1).sum(dim=1)
            offset = positions.keys - self.centre(x_BTD, lengths)[:, :, None]  # (B, T, S)
            allowed = mask & (offset.abs() <= self.window)[:, None]
            gauss = torch.exp(-offset.square() / (2 * (self.window / 2) ** 2))[:, None]
        if allowed is not None:
            scores_BHTS = scores_BHTS.masked_fill(~allowed, torch.finfo(scores_BHTS.dtype).min)
        weights = self._one_key(scores_BHTS) if self.hard else scores_BHTS.softmax(dim=-1)
        if allowed is not None:
            weights = weights.masked_fill(~allowed, 0.0)
        return weights if gauss is None else weights * gauss

    def _one_key(self, scores_BHTS: Tensor) -> Tensor:
        """Put all weight on one key: the best in translation, a sampled one in training, with the gradient
        of soft weights (straight-through Gumbel-softmax: Jang et al. 2017, section 2.2).
        """
        if self.training:
            return F.gumbel_softmax(scores_BHTS, hard=True, dim=-1)
        return torch.zeros_like(scores_BHTS).scatter_(-1, scores_BHTS.argmax(dim=-1, keepdim=True), 1.0)

    def _queries(self, x_BTD: Tensor, k_BHSK: Tensor, positions: Positions) -> Tensor:
        return self.relation.rotate(self.queries(x_BTD), positions).to(k_BHSK.dtype)

    def _allowed(self, mask: Tensor | None, causal: bool, positions: Positions) -> Tensor | None:
        if causal:
            mask = causal_mask(positions)
        if self.window and self.centre is None:
            near = window_mask(positions, self.window)
            mask = near if mask is None else mask & near
        return mask
