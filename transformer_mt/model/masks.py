"""Masks. One convention in the whole project: boolean, True = may attend, broadcastable to (B, H, T, S).

The causal mask has no function here: attention is told `causal`, and its kernels need no matrix for it.
"""

from torch import Tensor


def attend_to(src_mask: Tensor) -> Tensor:
    """(B, S), True = a real token -> (B, 1, 1, S): every query of a sentence may attend to its real tokens."""
    return src_mask[:, None, None, :]
