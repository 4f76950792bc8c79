"""Low-rank adaptation (Hu et al. 2021): a frozen matrix W and a trained product, W x + (a / r) B A x."""

import math
from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_A, _B = "lora_a", "lora_b"


class LoraLinear(nn.Linear):
    """A linear layer whose weight and bias stay as they are, with two thin matrices beside them.

    Letters: r rank, I inputs, O outputs.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__(linear.in_features, linear.out_features, linear.bias is not None, device="meta")
        self.weight, self.bias = linear.weight, linear.bias
        self.scale = alpha / rank
        self.lora_a = nn.Parameter(linear.weight.new_empty(rank, linear.in_features))  # (r, I)
        self.lora_b = nn.Parameter(linear.weight.new_zeros(linear.out_features, rank))  # (O, r)
        nn.init.kaiming_uniform_(self.lora_a, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(F.linear(x, self.lora_a), self.lora_b)
        return F.linear(x, self.weight, self.bias) + self.scale * low


def add_lora(modules: Iterable[nn.Module], rank: int, alpha: float) -> None:
    """Put LoraLinear in the place of each linear layer of the modules."""
    for module in modules:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoraLinear(child, rank, alpha))


def merged(weights: Mapping[str, Tensor], rank: int, alpha: float) -> dict[str, Tensor]:
    """Weights by their names with each product added to its matrix, as a model without adapters has them."""
    merged_weights = {name: tensor for name, tensor in weights.items() if not name.endswith((_A, _B))}
    for name, b in weights.items():
        if name.endswith(_B):
            layer = name.removesuffix(_B)
            product = torch.matmul(b.double(), weights[layer + _A].double()) * (alpha / rank)
            merged_weights[f"{layer}weight"] = (merged_weights[f"{layer}weight"].double() + product).to(
                b.dtype
            )
    return merged_weights
