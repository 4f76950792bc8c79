"""Token cut-off: passes in which some tokens have no embedding, only their position (Shen et al. 2020)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from transformer_mt.model.kernels.dropout import dropout

_of_this_thread = threading.local()


@contextmanager
def tokens_cut_off(share: float, kept_below: int) -> Iterator[None]:
    """Within it, embeddings that this thread looks up are zero with the probability `share`, but for those of
    ids below `kept_below`: beginnings and ends of sentences.
    """
    _of_this_thread.share, _of_this_thread.kept_below = share, kept_below
    try:
        yield
    finally:
        _of_this_thread.share = 0.0


def without_cut_off_tokens(x_BTD: Tensor, ids_BT: Tensor) -> Tensor:
    """The embeddings of tokens, without positions, with those that are cut off as zeros."""
    share = getattr(_of_this_thread, "share", 0.0)
    if not share:
        return x_BTD
    is_kept_BT = dropout(torch.ones_like(ids_BT, dtype=x_BTD.dtype), share) > 0
    return x_BTD * (is_kept_BT | (ids_BT < _of_this_thread.kept_below))[..., None]
