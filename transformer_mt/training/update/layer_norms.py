"""The gradient of each layer, and how far an update moves its weights: `train.log_gradients`."""

import re

import torch
from torch import Tensor, nn

from transformer_mt.training.update.sharding import full_tensor

_LAYER, _PART = re.compile(r"(\w+)\.layers\.(\d+)\."), re.compile(r"model\.(\w+)")


class LayerNorms:
    """Measures one update at a time. Of weights that several parts share, the first part counts them."""

    def __init__(self, objective: nn.Module) -> None:
        """`objective` has the model, and may be wrapped for several ranks."""
        self._layers: dict[str, list[nn.Parameter]] = {}
        self._before: list[list[Tensor]] = []
        self._gradients: list[Tensor] = []
        for name, parameter in objective.named_parameters():
            if parameter.requires_grad and (match := _LAYER.search(name) or _PART.search(name)):
                self._layers.setdefault(".".join(match.groups()), []).append(parameter)

    @property
    def names(self) -> list[str]:
        """The layers: `encoder.0`, `src_embedding`."""
        return list(self._layers)

    @torch.no_grad()
    def before_step(self) -> None:
        """Keep the weights and the lengths of the gradients, which are not clipped yet."""
        layers = self._layers.values()
        self._before = [[parameter.clone() for parameter in layer] for layer in layers]
        self._gradients = [_length([p.grad for p in layer if p.grad is not None]) for layer in layers]

    @torch.no_grad()
    def after_step(self) -> Tensor:
        """(layers, 2): the length of each layer's gradient, and that of its change as a share of the length
        of its weights.
        """
        changes = []
        for layer, before in zip(self._layers.values(), self._before):
            moved = [parameter - old for parameter, old in zip(layer, before)]
            changes.append(_length(moved) / _length(before))
        self._before = []
        return torch.stack([torch.stack(self._gradients), torch.stack(changes)], dim=1)


def _length(tensors: list[Tensor]) -> Tensor:
    """The Euclidean norm of all tensors together."""
    if not tensors:
        return torch.zeros(())
    norms = [full_tensor(torch.linalg.vector_norm(tensor.float())) for tensor in tensors]
    return torch.linalg.vector_norm(torch.stack(norms))
