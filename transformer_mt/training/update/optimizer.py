"""Adam, AdamW and Muon, and their state as named tensors."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import TrainConfig
from transformer_mt.device import choose_precision
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.parallel.sharding import copy_full, on_cpu
from transformer_mt.training.update.muon import Muon


class CombinedOptimizer(torch.optim.Optimizer):
    """Optimizers of different parameters as one: one list of groups, one state, one step.

    Like the fused AdamW it does nothing if `found_inf` is 1, if that is set.
    """

    found_inf: Tensor | None = None

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        fused = all(part.defaults.get("fused") or isinstance(part, Muon) for part in parts)
        super().__init__([group for part in parts for group in part.param_groups], {"fused": fused})
        self._parts = parts
        self._step_supports_amp_scaling = (
            fused  # the gradient scaler sets `found_inf`, too, instead of reading it
        )
        self.state: defaultdict[Tensor, Any] = defaultdict(dict)
        for part in parts:
            first = {id(parameter) for group in part.param_groups for parameter in group["params"]}
            part.param_groups = [group for group in self.param_groups if id(group["params"][0]) in first]
            part.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for part in self._parts:
            part.found_inf = self.found_inf  # type: ignore[attr-defined]
            part.step()


def build_optimizer(model: TranslationModel, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimizer over all parameters; only matrices are decayed, not biases and LayerNorms."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = [parameter for parameter in parameters if parameter.dim() > 1]
    others = [parameter for parameter in parameters if parameter.dim() <= 1]
    beta_1, beta_2 = config.betas
    settings: dict[str, Any] = {"lr": config.learning_rate, "betas": (beta_1, beta_2), "eps": config.eps}
    settings["fused"] = parameters[0].device.type in ("cpu", "cuda", "mps")
    if config.optimizer == "muon" and not config.lora.rank:  # thin matrices are AdamW's
        # Only matrices that turn one activation into another: a row of an embedding, or of the output
        # projection, is the vector of one piece, and most of them get no gradient in an update.
        modules = [module for block in model.blocks for module in block.modules()]
        hidden = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
        layers = [parameter for parameter in matrices if id(parameter) in hidden]
        if not layers:
            return torch.optim.AdamW(_groups(matrices, others, config.weight_decay), **settings)
        # Without instructions for it, bfloat16 is many times slower than float32.
        fast = choose_precision("auto", parameters[0].device) == torch.bfloat16
        dtype = torch.bfloat16 if fast else torch.float32
        muon = Muon(layers, config.learning_rate, config.weight_decay, dtype, config.share_muon)
        matrices = [parameter for parameter in matrices if id(parameter) not in hidden]
        return CombinedOptimizer(
            muon, torch.optim.AdamW(_groups(matrices, others, config.weight_decay), **settings)
        )
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(_groups(matrices, others, config.weight_decay), **settings)


def _groups(
    matrices: list[nn.Parameter], others: list[nn.Parameter], weight_decay: float
) -> list[dict[str, Any]]:
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, keep: bool = True
) -> dict[str, Tensor]:
    """The moments and step counts of each parameter under `parameter/moment`; none on a rank that need not
    `keep` them. A collective operation.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    full = {
        f"{names[parameter]}/{key}": on_cpu(value, keep)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }
    return {name: tensor for name, tensor in full.items() if tensor is not None}


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> None:
    """Restore the state that `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for path, value in tensors.items():
        name, _, key = path.rpartition("/")
        if name not in parameters:
            raise CheckpointError(f"the optimizer's state does not fit the model: it has no weight {name}")
        parameter = parameters[name]
        if value.dim():  # moments have their parameter's device and shards; step counts keep theirs
            moment = torch.zeros_like(parameter)
            copy_full(moment, value)
            optimizer.state[parameter][key] = moment
        else:
            optimizer.state[parameter][key] = value.to(parameter.device)
