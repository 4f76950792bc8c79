"""Adam, AdamW and Muon, and their state as named tensors."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import TrainConfig
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.device import choose_precision
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.update.muon import Muon
from transformer_mt.training.update.sharding import copy_full, on_cpu


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
    """The optimizer of `train.optimizer` over all parameters. A class has a classmethod `of(model, config)`,
    as ours do, or gets `groups` and the learning rate.
    """
    key = "train.optimizer"
    kind: Any = part_class("optimizer", config.optimizer, key, torch.optim.Optimizer)
    settings = part_settings(kind, config.optimizer, key)
    if hasattr(kind, "of"):
        made: torch.optim.Optimizer = kind.of(model, config, **settings)
        return made
    made = kind(groups(model.parameters(), config), lr=config.learning_rate, **settings)
    return made


def groups(parameters: Iterable[nn.Parameter], config: TrainConfig) -> list[dict[str, Any]]:
    """The trained parameters: matrices with weight decay, biases and norms without."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = {"params": [p for p in trained if p.dim() > 1], "weight_decay": config.weight_decay}
    others = {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0}
    return [group for group in (matrices, others) if group["params"]]


def _adam_settings(groups: list[dict[str, Any]], config: TrainConfig) -> dict[str, Any]:
    beta_1, beta_2 = config.betas
    fused = groups[0]["params"][0].device.type in ("cpu", "cuda", "mps")
    return {"lr": config.learning_rate, "betas": (beta_1, beta_2), "eps": config.eps, "fused": fused}


class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    @classmethod
    def of(cls, model: nn.Module, config: TrainConfig) -> "AdamW":
        of_model = groups(model.parameters(), config)
        return cls(of_model, **_adam_settings(of_model, config))


class Adam(torch.optim.Adam):
    """Adam (paper, section 5.3), whose weight decay is added to the gradient."""

    @classmethod
    def of(cls, model: nn.Module, config: TrainConfig) -> "Adam":
        of_model = groups(model.parameters(), config)
        return cls(of_model, **_adam_settings(of_model, config))


class MuonAndAdamW(CombinedOptimizer):
    """Muon for the matrices of the layers, AdamW for the rest."""

    @classmethod
    def of(cls, model: TranslationModel, config: TrainConfig) -> torch.optim.Optimizer:
        # Only matrices that turn one activation into another: a row of an embedding, or of the output
        # projection, is the vector of one token, and most of them get no gradient in an update.
        modules = [module for block in model.blocks for module in block.modules()]
        weights = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
        hidden = [p for p in model.parameters() if p.requires_grad and p.dim() > 1 and id(p) in weights]
        if not hidden or config.lora.rank:  # thin matrices are AdamW's
            return AdamW.of(model, config)
        # Without instructions for it, bfloat16 is many times slower than float32.
        fast = choose_precision("auto", hidden[0].device) == torch.bfloat16
        dtype = torch.bfloat16 if fast else torch.float32
        muon = Muon(hidden, config.learning_rate, config.weight_decay, dtype, config.share_muon)
        ids = {id(parameter) for parameter in hidden}
        rest = groups((p for p in model.parameters() if id(p) not in ids), config)
        return cls(muon, torch.optim.AdamW(rest, **_adam_settings(rest, config)))


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
