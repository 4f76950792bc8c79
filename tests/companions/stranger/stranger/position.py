"""A learned bias by distance."""

import torch
from torch import nn

from transformer_mt.model.variants.position_bias import PositionBias


class Kerple(PositionBias):
    """Subtracts r1 log(1 + r2 distance), with r1 and r2 of each head (Chi et al. 2022, equation 9)."""

    def __init__(self, num_heads, head_width):
        super().__init__()
        self.r_2H = nn.Parameter(torch.ones(2, num_heads))

    def score_bias(self, score, q_BHTK, positions):
        distance_TS = (positions.queries[:, None] - positions.keys).abs()
        r1, r2 = self.r_2H.clamp(min=0.01)[:, :, None, None].to(q_BHTK.dtype)
        return -r1 * torch.log1p(r2 * distance_TS)
