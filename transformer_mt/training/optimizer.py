"""Adam and AdamW, and their state as named tensors."""

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import TrainConfig


def build_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer over all parameters; only matrices are decayed, not biases and LayerNorms."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    fused = parameters[0].device.type in ("cpu", "cuda", "mps")
    return kind(groups, lr=config.learning_rate, betas=(config.betas[0], config.betas[1]), eps=config.eps, fused=fused)


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The moments and step counts of each parameter under `parameter/moment`."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value.detach().cpu().contiguous()
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def load_optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Put back what `optimizer_tensors` gave."""
    parameters = dict(model.named_parameters())
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        if name not in parameters:
            raise CheckpointError(f"the optimizer's state does not fit the model: it has no weight {name}")
        parameter = parameters[name]
        # Step counts stay where the optimizer makes them; moments go with their parameter.
        device = parameter.device if value.dim() or parameter.device.type == "cuda" else value.device
        optimizer.state[parameter][key] = value.to(device)
