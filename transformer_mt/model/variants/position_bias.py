"""Positions inside attention (rotary, relative, ALiBi): how the distance of query and key changes it. One
class per method.

Letters: B sentences, H heads, T queries, S keys, K head width.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_mt.model.fast_attention import uses_cpu_code
from transformer_mt.model.masks import Positions
from transformer_mt.model.variants.attention_scores import AttentionScore
from transformer_mt.settings.section import Positive, Section


class PositionBias(nn.Module):
    """Base class with the hooks of all methods. The base class itself changes nothing; it is used for
    absolute positions, which are added to the embeddings, and for no positions.
    """

    needs: ClassVar[str] = ""
    """The class attribute that must be true for an attention score to be used with this method."""
    even_heads: ClassVar[bool] = False
    """Needs heads of an even width."""
    bounded: ClassVar[bool] = False
    """Has weights for each of data.max_length positions, and no more."""

    @classmethod
    def of(cls, num_heads: int, head_width: int, **settings: Any) -> "PositionBias":
        return cls(num_heads, head_width, **settings)

    def __init__(self, num_heads: int = 1, head_width: int = 1) -> None:
        super().__init__()

    def fusable(self, v_BHSK: Tensor) -> bool:
        """True if torch's fused kernels can compute attention with this method, and are fast."""
        return True

    def rotate(self, x_BHTK: Tensor, positions: Positions) -> Tensor:
        """The queries or keys at `positions.queries`, transformed before the score is computed."""
        return x_BHTK

    def score_bias(self, score: AttentionScore, q_BHTK: Tensor, positions: Positions) -> Tensor | None:
        """The term added to the scores: broadcastable to (B, H, T, S)."""
        return None

    def value_bias(self, weights_BHTS: Tensor, positions: Positions) -> Tensor | None:
        """The term added to the weighted sum of the values: (B, H, T, K)."""
        return None


class Rotary(PositionBias):
    """Turns each pair of numbers of a query or key by its position times 10000^(-2i/K), so that their dot
    product depends on the distance alone (Su et al. 2021, equation 34).
    """

    needs, even_heads = "rotary", True

    def __init__(self, num_heads: int = 1, head_width: int = 1) -> None:
        super().__init__()
        self._turns = torch.empty(0)  # not a buffer: that would be rounded in a model in bfloat16

    def rotate(self, x_BHTK: Tensor, positions: Positions) -> Tensor:
        # When compiled, the formula is one kernel. The compiler lacks complex numbers, as do some Macs.
        by_formula = torch.compiler.is_compiling() or x_BHTK.device.type == "mps"
        return (self.rotate_by_formula if by_formula else self.rotate_by_products)(x_BHTK, positions)

    def rotate_by_formula(self, x_BHTK: Tensor, positions: Positions) -> Tensor:
        angle = _angles(positions.queries, x_BHTK.size(-1))
        sin_TK, cos_TK = (
            f(angle).to(x_BHTK.dtype).repeat_interleave(2, dim=-1) for f in (torch.sin, torch.cos)
        )
        even, odd = x_BHTK.unflatten(-1, (-1, 2)).unbind(-1)
        return x_BHTK * cos_TK + torch.stack([-odd, even], dim=-1).flatten(-2) * sin_TK

    def rotate_by_products(self, x_BHTK: Tensor, positions: Positions) -> Tensor:
        """Rotate by products of complex numbers in float32. Compared with the formula, forward and backward
        take a third of the time on a CPU, and a fifth of the operations on a GPU.
        """
        turns = self._turns  # local reference: another thread may replace self._turns
        if len(turns) < positions.end or turns.device != x_BHTK.device:
            all_positions = torch.arange(max(512, 2 * positions.end), device=x_BHTK.device)
            angle = _angles(all_positions, x_BHTK.size(-1))
            self._turns = turns = torch.polar(torch.ones_like(angle), angle)
        wide = x_BHTK.to(torch.promote_types(x_BHTK.dtype, torch.float32))
        turned = torch.view_as_complex(wide.unflatten(-1, (-1, 2))) * turns[positions.queries]
        return torch.view_as_real(turned).flatten(-2).to(x_BHTK.dtype)


def _angles(positions_T: Tensor, K: int) -> Tensor:
    """(T, K/2) in float32: the rotation angle of each pair of elements at each position."""
    return positions_T.float()[:, None] * 10000.0 ** (-torch.arange(0, K, 2, device=positions_T.device) / K)


class Alibi(PositionBias):
    """Subtracts a head's slope times the distance from each score; slopes 2^(-8h/H) (Press et al. 2022,
    section 3).

    In the encoder, keys lie on both sides of the query; the absolute distance is used.
    """

    def __init__(self, num_heads: int, head_width: int = 1) -> None:
        super().__init__()
        self.num_heads = num_heads

    def fusable(self, v_BHSK: Tensor) -> bool:
        # On a CPU in bfloat16 the kernel with a bias is slower than the plain formula.
        return v_BHSK.dtype != torch.bfloat16 or not uses_cpu_code(v_BHSK)

    def score_bias(self, score: AttentionScore, q_BHTK: Tensor, positions: Positions) -> Tensor:
        slopes_H = 2.0 ** (-8.0 * torch.arange(1, self.num_heads + 1, device=q_BHTK.device) / self.num_heads)
        return -slopes_H[:, None, None] * (positions.queries[:, None] - positions.keys).abs()


class Relative(PositionBias):
    """A learned vector for each distance, added to the keys and to the values (Shaw et al. 2018, equations 3,
    4).

    Heads share the vectors, as in the paper.
    """

    class Settings(Section):
        """Keys of relative."""

        distance: Positive = 16
        """Larger distances are clipped to this one."""

    needs = "relative"

    def __init__(self, num_heads: int, head_width: int, settings: Settings) -> None:
        super().__init__()
        self.most = most = settings.distance
        self.keys = nn.Parameter(torch.empty(2 * most + 1, head_width))
        self.values = nn.Parameter(torch.empty(2 * most + 1, head_width))
        for vectors in (self.keys, self.values):
            nn.init.xavier_uniform_(vectors)

    def fusable(self, v_BHSK: Tensor) -> bool:
        return False

    def score_bias(self, score: AttentionScore, q_BHTK: Tensor, positions: Positions) -> Tensor:
        # score(q, k + a) = score(q, k) + score(q, a): a dot product, scaled or not, is linear in k.
        by_distance = score(q_BHTK, self.keys.to(q_BHTK.dtype))  # (B, H, T, 2 most + 1)
        return by_distance.gather(3, self._distances(positions).expand(*q_BHTK.shape[:2], -1, -1))

    def value_bias(self, weights_BHTS: Tensor, positions: Positions) -> Tensor:
        # Many small weights are summed at the largest distance, so the sums stay in the weights' float32.
        B, H, T, _ = weights_BHTS.shape
        by_distance = weights_BHTS.new_zeros(B, H, T, len(self.values))
        by_distance = by_distance.scatter_add(
            3, self._distances(positions).expand(B, H, -1, -1), weights_BHTS
        )
        return by_distance @ self.values.to(weights_BHTS.dtype)

    def _distances(self, positions: Positions) -> Tensor:
        """(T, S): index of the vector for the clipped distance from query to key."""
        return (positions.keys - positions.queries[:, None]).clamp(-self.most, self.most) + self.most
