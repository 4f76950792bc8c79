"""Linear layers in the layout that oneDNN multiplies fastest, for a model that only translates on a CPU."""

from typing import Any

import torch
from torch import Tensor, nn


class PackedLinear(nn.Module):
    """x Wᵀ + b like the given layer, with the weights in oneDNN's own layout.

    About a tenth faster than nn.Linear in float32, and twice as fast for few rows in bfloat16
    (docs/measurements/performance.md); it cannot be trained or saved.
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
    """Replace the linear layers of a model on a CPU, if oneDNN's operators are there for its dtype."""
    weight = next(model.parameters())
    if weight.device.type != "cpu" or not _is_supported(weight.dtype):
        return
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child))


def _is_supported(dtype: torch.dtype) -> bool:
    operators: Any = torch.ops.mkldnn
    if not (torch.backends.mkldnn.is_available() and hasattr(operators, "_linear_pointwise")):
        return False
    return dtype == torch.float32 or (dtype == torch.bfloat16 and operators._is_mkldnn_bf16_supported())
