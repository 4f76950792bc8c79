"""Positions that are added to the embeddings: sinusoidal and learned. Rotary and relative ones, which work
inside attention, are in variants/position_bias.py. All have the same `forward`, which gets the position of
the first token or, in packed rows, the position of each token.

Letters: B sentences, T length, D width.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn


def sinusoids(length: int, d_model: int) -> Tensor:
    """(T, D): PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)) (paper, section
    3.5).
    """
    position = torch.arange(length, dtype=torch.float64)[:, None]  # (T, 1)
    frequency = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (D/2,)
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)
    return table.float()


def marian_sinusoids(length: int, d_model: int, first: int = 0) -> Tensor:
    """(T, D): Marian's and tensor2tensor's form of the sinusoids, of the positions from `first` on. Its
    frequencies 10000^(-i / (D/2 - 1)) end at 1/10000.
    """
    position = torch.arange(first, length + first, dtype=torch.float64)[:, None]
    frequency = 10000.0 ** (-torch.arange(d_model // 2, dtype=torch.float64) / (d_model // 2 - 1))
    return (
        torch.stack([torch.sin(position * frequency), torch.cos(position * frequency)], dim=2)
        .flatten(1)
        .float()
    )


def fairseq_sinusoids(length: int, d_model: int) -> Tensor:
    """(T, D): fairseq's form: it begins with position 2, because the first two are reserved for padding."""
    return marian_sinusoids(length, d_model, first=2)


class AddedPositions(nn.Module):
    """The base of positions that are added to embeddings."""

    bounded: ClassVar[bool] = False
    """Has weights for each of data.max_length positions, and no more."""

    @classmethod
    def of(cls, d_model: int, max_length: int, **settings: Any) -> "AddedPositions":
        """Build the positions of sequences of up to `max_length` tokens."""
        return cls(d_model, **settings)

    def __init__(self, d_model: int = 1) -> None:
        super().__init__()

    def forward(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        raise NotImplementedError


class SinusoidalPositions(AddedPositions):
    """Adds the paper's sinusoids; has no parameters and no end."""

    table: Tensor

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("table", self.formula(512, d_model), persistent=False)

    @staticmethod
    def formula(length: int, d_model: int) -> Tensor:
        """The first positions: (T, D)."""
        return sinusoids(length, d_model)

    def forward(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        """Embeddings of the positions from `start` on, or of the (B, T) positions `start` themselves, with
        their sinusoids added.
        """
        end = x_BTD.size(1) + (start if isinstance(start, int) else 0)
        table = self.table  # local reference: another thread may replace self.table
        if end > len(table):
            self.table = table = self.formula(2 * end, table.size(1)).to(table)
        return x_BTD + (table[start:end] if isinstance(start, int) else table[start])


class MarianPositions(SinusoidalPositions):
    """Adds Marian's sinusoids."""

    @staticmethod
    def formula(length: int, d_model: int) -> Tensor:
        return marian_sinusoids(length, d_model)


class FairseqPositions(SinusoidalPositions):
    """Adds fairseq's sinusoids, as M2M-100 and NLLB do."""

    @staticmethod
    def formula(length: int, d_model: int) -> Tensor:
        return fairseq_sinusoids(length, d_model)


class NoPositions(AddedPositions):
    """Adds nothing: positions are inside attention, or nowhere."""

    def forward(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        return x_BTD


class LearnedPositions(AddedPositions):
    """Adds one learned vector for each of `max_length` positions (paper, table 3, row E)."""

    bounded = True

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_length, d_model)

    @classmethod
    def of(cls, d_model: int, max_length: int, **settings: Any) -> "LearnedPositions":
        return cls(d_model, max_length)

    @property
    def max_length(self) -> int:
        return self.embedding.num_embeddings

    def forward(self, x_BTD: Tensor, start: int | Tensor = 0) -> Tensor:
        if isinstance(start, Tensor):  # a row may be longer than each of its sentences
            return x_BTD + self.embedding(start)
        end = start + x_BTD.size(1)
        if end > self.max_length:
            raise ValueError(
                f"a sequence must have at most {self.max_length} positions, but has {end}; the model was "
                f"built with `data.max_length` {self.max_length}"
            )
        return x_BTD + self.embedding.weight[start:end]
