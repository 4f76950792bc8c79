"""Layers that sentences leave out in training.

Letters: B sentences, T length, D width.
"""

import torch
from torch import Tensor, nn

from transformer_mt.model.kernels.dropout import dropout


class LayerDrop(nn.Module):
    """Leaves out a layer with the probability p, in training, for each sentence or packed row by itself (Fan
    et al. 2020, section 3). The layer is computed all the same: so all ranks and graphs compute alike.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
        if not self.training or not self.p:
            return after_BTD
        is_kept_B11 = dropout(torch.ones_like(before_BTD[:, :1, :1]), self.p) > 0
        return torch.where(is_kept_B11, after_BTD, before_BTD)
