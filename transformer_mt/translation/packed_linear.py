"""Linear layers in the layout that oneDNN multiplies fastest, for a model that only translates on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """x Wᵀ + b like the given layer, with the weights in oneDNN's own layout.

    About a tenth faster than nn.Linear in float32 (docs/measurements/performance.md); it cannot be trained or
    saved.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        operators: Any = torch.ops.mkldnn
        self.multiply = operators._linear_pointwise
        self.weight = operators._reorder_linear_weight(linear.weight.detach(), None)
        self.bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.weight, self.bias, "none", [], "")


def pack(model: nn.Module) -> None:
    """Replace the linear layers of a float32 model on a CPU, if this torch has oneDNN's operators."""
    weight = next(model.parameters())
    usable = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or not usable:
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child))
