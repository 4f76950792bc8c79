"""Masks. One convention in the whole project: boolean, True = may attend, broadcastable to (B, H, T, S).

Standard attention takes `causal=True` and needs no matrix; the matrices here are for the variants.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """Positions of T queries and S keys in their sentences."""

    queries: Tensor
    """(T,)"""
    keys: Tensor
    """(S,)"""
    end: int
    """All are below it: the size of a table of them."""

    @classmethod
    def of(cls, num_queries: int, num_keys: int, device: torch.device) -> "Positions":
        """Positions of complete sentences: 0, 1, 2 ... In a search they are others."""
        queries, keys = (torch.arange(n, device=device) for n in (num_queries, num_keys))
        return cls(queries, keys, max(num_queries, num_keys))


def attend_to(src_mask: Tensor) -> Tensor:
    """(B, S), True = a real token -> (B, 1, 1, S): every query of a sentence may attend to its
    real tokens.
    """
    return src_mask[:, None, None, :]


def causal_mask(positions: Positions) -> Tensor:
    """(T, S): a query may attend to the keys at its own position and before."""
    return positions.keys <= positions.queries[:, None]


def window_mask(positions: Positions, window: int) -> Tensor:
    """(T, S): a query may attend to the keys at most `window` positions away."""
    return (positions.keys - positions.queries[:, None]).abs() <= window
