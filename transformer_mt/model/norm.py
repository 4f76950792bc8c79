"""The norms of `model.norm_kind`: each is built with the width of what it normalises."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LayerNorm = nn.LayerNorm
"""The paper's norm (Ba et al. 2016)."""


class RMSNorm(nn.Module):
    """x / sqrt(mean of x² + eps) times a weight (Zhang and Sennrich 2019, equation 4): LayerNorm without the
    mean and the bias. Computed in float32, given back in the dtype of x.
    """

    eps = 1e-5
    """That of LayerNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.eps)
