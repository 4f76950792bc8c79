"""Masks. One convention in the whole project: boolean, True = may attend, broadcastable to (B, H, T, S)."""

import torch
from torch import Tensor


def padding_mask(tokens: Tensor, pad_id: int) -> Tensor:
    """(B, S) ids -> (B, S): True where there is a real token."""
    return tokens != pad_id


def attend_to(src_mask: Tensor) -> Tensor:
    """(B, S) real tokens -> (B, 1, 1, S): every query of a sentence may attend to its real tokens."""
    return src_mask[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """(T, T): row t may attend to the columns up to t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
