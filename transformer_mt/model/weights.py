"""The attention weights a model computes, for whoever wants to look at them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from transformer_mt.model.attention import MultiHeadAttention


@contextmanager
def recorded(attention: MultiHeadAttention) -> Iterator[list[Tensor]]:
    """Within it, the weights (B, H, T, S) of each call of `attention` are added to the list, newest last.

    They are computed beside the fused path, by the plain formula: nothing is slower where nobody looks.
    """
    seen: list[Tensor] = []

    def look(module: MultiHeadAttention, arguments: tuple[Any, ...], options: dict[str, Any], result: Tensor) -> None:
        seen.append(module.weights(*arguments, **options))

    handle = attention.register_forward_hook(look, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()
