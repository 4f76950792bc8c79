"""Copies of a network's weights in the precision of its products, made by one kernel.

Autocast casts each weight and bias by a kernel of its own, forward and backward: a fifth of the kernels of an
update, and a small model's time on a GPU is that of starting kernels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class _Copies(torch.autograd.Function):
    """Float32 tensors -> their copies in `dtype`, whose gradients come back in float32."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *weights: Tensor) -> tuple[Tensor, ...]:
        return tuple(_cast(weights, dtype))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (None, *_cast(grads, torch.float32))


def _cast(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    torch._foreach_copy_(copies, list(tensors))
    return copies


class WeightCopies:
    """The linear layers of some blocks, which compute with copies of their weights where asked."""

    def __init__(self, blocks: list[nn.Module]) -> None:
        linear = [module for block in blocks for module in block.modules() if isinstance(module, nn.Linear)]
        self._weights = [(module, name) for module in linear for name, _ in module.named_parameters()]

    @contextmanager
    def in_dtype(self, dtype: torch.dtype) -> Iterator[None]:
        """Within it the layers compute with copies in `dtype`."""
        weights = [module.get_parameter(name) for module, name in self._weights]
        trained = tuple(weight for weight in weights if weight.requires_grad)
        frozen = tuple(weight.detach() for weight in weights if not weight.requires_grad)
        copies = iter(_Copies.apply(dtype, *trained) if trained else ())
        others = iter(_cast(frozen, dtype) if frozen else ())
        # An attribute of the object itself hides the parameter of this name.
        for (module, name), weight in zip(self._weights, weights):
            module.__dict__[name] = next(copies if weight.requires_grad else others)
        try:
            yield
        finally:
            for module, name in self._weights:
                del module.__dict__[name]
