"""Attention as the literature varies it, behind the methods of MultiHeadAttention: other scores, positions inside, windows,
one key at a time. Written as formulas, not for speed; what it can, it hands to the fused kernels.

Letters: B sentences, T queries, S keys, D width, H heads, K head width.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.attention import MultiHeadAttention, fused_attention
from transformer_mt.model.dropout import dropout as drop
from transformer_mt.model.masks import Places, causal_mask, window_mask
from transformer_mt.model.relations import Alibi, Relative, Rotary
from transformer_mt.model.scores import ScaledDot, Score


class PredictedCentre(nn.Module):
    """Where in the source each query looks: p = S sigmoid(vᵀ tanh(W h)) (Luong et al. 2015, equation 9)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_model, bias=False)
        self.outer = nn.Linear(d_model, 1, bias=False)

    def forward(self, x_BTD: Tensor, lengths_B: Tensor) -> Tensor:
        """(B, T) places in sources of the given lengths."""
        return lengths_B[:, None] * torch.sigmoid(self.outer(torch.tanh(self.inner(x_BTD)))[..., 0].float())


class VariantAttention(MultiHeadAttention):
    """Multi-head attention with one or more of its parts exchanged."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        score: Score | None = None,
        relation: Rotary | Alibi | Relative | None = None,
        window: int = 0,
        centre: PredictedCentre | None = None,
        hard: bool = False,
    ) -> None:
        """`window` w > 0: a query at place t sees the keys at t - w to t + w; with a `centre` those around it, under a Gaussian
        of deviation w / 2 (Luong et al. 2015, section 3.2). `hard`: one key alone, in training drawn at random.
        """
        super().__init__(d_model, num_heads, dropout)
        self.score = score or ScaledDot()
        self.relation, self.window, self.centre, self.hard = relation, window, centre, hard
        self.fusable = (
            isinstance(self.score, ScaledDot) and not isinstance(relation, Relative) and not centre and not hard
        )

    def keys_values(self, x_BSD: Tensor, places_S: Tensor | None = None) -> tuple[Tensor, Tensor]:
        keys, values = super().keys_values(x_BSD)
        if isinstance(self.relation, Rotary):
            keys = self.relation(keys, torch.arange(keys.size(2), device=keys.device) if places_S is None else places_S)
        return self.score.keys(keys), values

    def forward(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        places: Places | None = None,
    ) -> Tensor:
        places = places or Places.of(x_BTD.size(1), k_BHSK.size(2), x_BTD.device)
        dropout = self.dropout if self.training else 0.0
        # Torch's kernel in bfloat16 on a processor is slower than the formula.
        slow_kernel = isinstance(self.relation, Alibi) and x_BTD.device.type == "cpu" and v_BHSK.dtype == torch.bfloat16
        if not self.fusable or slow_kernel:
            weights = drop(self._weights(x_BTD, k_BHSK, mask, causal, places), dropout).to(v_BHSK.dtype)
            heads_BHTK = weights @ v_BHSK
            if isinstance(self.relation, Relative):
                distances = self.relation.distances(places.queries, places.keys)
                heads_BHTK = heads_BHTK + self.relation.attended(weights, distances)
            return self.output(self._join(heads_BHTK))
        q = self._queries(x_BTD, places)
        if isinstance(self.relation, Alibi):
            allowed = self._allowed(mask, causal, places)
            bias = self.relation(places.queries, places.keys).to(q.dtype)[None]
            bias = bias if allowed is None else bias.masked_fill(~allowed, torch.finfo(q.dtype).min)
            return self.output(self._join(F.scaled_dot_product_attention(q, k_BHSK, v_BHSK, bias, dropout)))
        if self.window:
            mask, causal = self._allowed(mask, causal, places), False
        return self.output(self._join(fused_attention(q, k_BHSK, v_BHSK, mask, dropout, causal)))

    def weights(
        self,
        x_BTD: Tensor,
        k_BHSK: Tensor,
        v_BHSK: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        places: Places | None = None,
    ) -> Tensor:
        places = places or Places.of(x_BTD.size(1), k_BHSK.size(2), x_BTD.device)
        return self._weights(x_BTD, k_BHSK, mask, causal, places)

    def _weights(self, x_BTD: Tensor, k_BHSK: Tensor, mask: Tensor | None, causal: bool, places: Places) -> Tensor:
        q = self._queries(x_BTD, places)
        scores_BHTS = self.score(q, k_BHSK)
        if isinstance(self.relation, Relative):
            distances = self.relation.distances(places.queries, places.keys)
            # The formula adds a to k before the product: what scales the one scales the other.
            scale = math.sqrt(q.size(-1)) if isinstance(self.score, ScaledDot) else 1.0
            scores_BHTS = scores_BHTS + self.relation.scores(q, distances) / scale
        scores_BHTS = scores_BHTS.float()
        if isinstance(self.relation, Alibi):
            scores_BHTS = scores_BHTS + self.relation(places.queries, places.keys)
        allowed = self._allowed(mask, causal, places)
        gauss = None
        if self.centre is not None:
            assert mask is not None
            lengths = mask.flatten(1).sum(dim=1)
            offset = places.keys - self.centre(x_BTD, lengths)[:, :, None]  # (B, T, S)
            allowed = mask & (offset.abs() <= self.window)[:, None]
            gauss = torch.exp(-offset.square() / (2 * (self.window / 2) ** 2))[:, None]
        if allowed is not None:
            scores_BHTS = scores_BHTS.masked_fill(~allowed, torch.finfo(scores_BHTS.dtype).min)
        weights = self._one_key(scores_BHTS) if self.hard else scores_BHTS.softmax(dim=-1)
        if allowed is not None:
            weights = weights.masked_fill(~allowed, 0.0)
        return weights if gauss is None else weights * gauss

    def _one_key(self, scores_BHTS: Tensor) -> Tensor:
        """All weight on one key: the best in translation; in training one drawn by its weight, whose gradient is taken
        as if it were soft (straight-through Gumbel-softmax: Jang et al. 2017, section 2.2).
        """
        if self.training:
            return F.gumbel_softmax(scores_BHTS, hard=True, dim=-1)
        return torch.zeros_like(scores_BHTS).scatter_(-1, scores_BHTS.argmax(dim=-1, keepdim=True), 1.0)

    def _queries(self, x_BTD: Tensor, places: Places) -> Tensor:
        q = self._split(self.query(x_BTD))
        return self.relation(q, places.queries) if isinstance(self.relation, Rotary) else q

    def _allowed(self, mask: Tensor | None, causal: bool, places: Places) -> Tensor | None:
        if causal:
            mask = causal_mask(places)
        if self.window and self.centre is None:
            near = window_mask(places, self.window)
            mask = near if mask is None else mask & near
        return mask
