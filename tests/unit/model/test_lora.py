"""Low-rank adaptation: what is added, and that it is no more and no less."""

import torch
from torch import nn

from transformer_mt.update.build_updater import LoraLinear, add_lora, merged


def test_an_adapted_layer_begins_as_the_layer_and_computes_as_the_merged_one():
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    adapted, x = LoraLinear(layer, rank=2, alpha=8.0), torch.randn(5, 6)
    assert torch.equal(adapted(x), layer(x))
    nn.init.normal_(adapted.lora_b)
    weights = merged({name: tensor.detach() for name, tensor in adapted.named_parameters()}, 2, 8.0)
    assert weights.keys() == {"weight", "bias"}
    by_hand = layer.weight + 4.0 * adapted.lora_b @ adapted.lora_a
    torch.testing.assert_close(weights["weight"], by_hand.detach())
    torch.testing.assert_close(adapted(x), nn.functional.linear(x, weights["weight"], weights["bias"]))


def test_at_full_rank_it_learns_what_full_training_learns():
    """With orthonormal rows of A, a step of SGD changes W + B A as it changes a W that is trained itself."""
    torch.manual_seed(0)
    full = nn.Linear(6, 4, bias=False)
    adapted = LoraLinear(nn.Linear(6, 4, bias=False), rank=6, alpha=6.0)
    with torch.no_grad():
        adapted.weight.copy_(full.weight)
        nn.init.orthogonal_(adapted.lora_a)
    adapted.weight.requires_grad_(False)
    x, y = torch.randn(20, 6), torch.randn(20, 4)
    for layer in (full, adapted):
        parameters = [parameter for parameter in layer.parameters() if parameter.requires_grad]
        ((layer(x) - y) ** 2).mean().backward()
        torch.optim.SGD(parameters, lr=0.1).step()
    after = merged({name: tensor.detach() for name, tensor in adapted.named_parameters()}, 6, 6.0)["weight"]
    torch.testing.assert_close(after, full.weight.detach())
    assert not torch.equal(after, adapted.weight)


def test_only_linear_layers_of_the_modules_get_matrices():
    module = nn.ModuleDict({"linear": nn.Linear(4, 4), "norm": nn.LayerNorm(4)})
    add_lora([module], 3, 1.0)
    names = [name for name, _ in module.named_parameters() if "lora" in name]
    assert names == ["linear.lora_a", "linear.lora_b"] and module["linear"].lora_a.shape == (3, 4)
