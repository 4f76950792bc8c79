"""A norm with one number."""

import torch
import torch.nn.functional as F
from torch import nn


class ScaleNorm(nn.Module):
    """g x / |x| (Nguyen and Salazar 2019, equation 5)."""

    def __init__(self, width):
        super().__init__()
        self.g = nn.Parameter(torch.tensor(width**0.5))

    def forward(self, x):
        return self.g.to(x.dtype) * F.normalize(x, dim=-1)
