"""A mixture of experts as feed-forward network."""

import torch
from pydantic import Field
from torch import nn

from transformer_mt.model.transformer import FeedForward
from transformer_mt.settings.section import Section


class Experts(nn.Module):
    """The outputs of several networks, weighted by a softmax over x W (Jacobs et al. 1991)."""

    class Settings(Section):
        """Keys of experts."""

        num: int = Field(2, ge=2)
        """The number of experts."""

    def __init__(self, d_model, d_ff, dropout, settings):
        super().__init__()
        experts = (FeedForward(d_model, d_ff // settings.num, dropout) for _ in range(settings.num))
        self.experts, self.gate = nn.ModuleList(experts), nn.Linear(d_model, settings.num)

    def forward(self, x):
        weights = self.gate(x).softmax(dim=-1)[..., None, :]
        return (torch.stack([expert(x) for expert in self.experts], dim=-1) * weights).sum(dim=-1)
