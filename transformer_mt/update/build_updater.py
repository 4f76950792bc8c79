"""The build of an updater: model, loss, optimizer, and weights that are fixed or adapted by low rank."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Tensors
from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.device import allow_tf32
from transformer_mt.messages import say
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.interface import TranslationModel
from transformer_mt.parts import is_ours
from transformer_mt.ranks import Ranks
from transformer_mt.update.acceleration import (
    checkpoint_activations,
    gradient_threads,
    is_compiled,
    use_compiler_cache,
)
from transformer_mt.update.captured import CapturedUpdater
from transformer_mt.update.loss import Loss
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.sharding import wrap_distributed
from transformer_mt.update.step import Objective, Updater

_A, _B = "lora_a", "lora_b"


class LoraLinear(nn.Linear):
    """A linear layer whose weight and bias stay as they are, and two thin matrices that are trained.

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
    """The weights, by name, of an equivalent model without LoRA: each product is added to its matrix."""
    merged_weights = {name: tensor for name, tensor in weights.items() if not name.endswith((_A, _B))}
    for name, b in weights.items():
        if name.endswith(_B):
            layer = name.removesuffix(_B)
            product = torch.matmul(b.double(), weights[layer + _A].double()) * (alpha / rank)
            merged_weights[f"{layer}weight"] = (merged_weights[f"{layer}weight"].double() + product).to(
                b.dtype
            )
    return merged_weights


_PARTS = {
    "embeddings": ("src_embedding.", "tgt_embedding."),
    "encoder": ("encoder.",),
    "decoder": ("decoder.",),
}


def adapt(model: TranslationModel, train: TrainConfig) -> None:
    """Freeze what the config freezes. With LoRA, add its matrices and freeze everything else."""
    prefixes = tuple(prefix for part in train.freeze for prefix in _PARTS[part])
    has_lora = train.lora.rank > 0
    for name, parameter in model.named_parameters():
        if has_lora or name.startswith(prefixes):
            parameter.requires_grad_(False)
    if has_lora:
        stays = {block for name, block in model.named_modules() if name.startswith(prefixes)}
        blocks = [block for block in model.blocks if block not in stays]
        modules = [module for block in blocks for module in _adapted(block, train)]
        add_lora(modules, train.lora.rank, train.lora.alpha)


def _adapted(block: nn.Module, train: TrainConfig) -> Iterator[nn.Module]:
    """The attention and feed-forward modules of a layer that get LoRA matrices."""
    for name, module in block.named_children():
        if isinstance(module, MultiHeadAttention):
            if "attention" in train.lora.modules:
                yield module
        elif name == "feed_forward" and "feed_forward" in train.lora.modules:
            yield module


def trains_embeddings(train: TrainConfig) -> bool:
    """True if vectors of tokens change."""
    return not train.lora.rank and "embeddings" not in train.freeze


def is_partial(train: TrainConfig) -> bool:
    """True if only a part of the weights is trained."""
    return bool(train.freeze) or train.lora.rank > 0


def split(model: nn.Module, weights: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Split the model's weights into (trained, frozen)."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return (
        {name: tensor for name, tensor in weights.items() if name in trained},
        {name: tensor for name, tensor in weights.items() if name not in trained},
    )


def averaged(files: Iterable[Path], train: TrainConfig, frozen: Path) -> dict[str, Tensor]:
    """The mean of the trained weights of several checkpoints. With LoRA, the mean of the merged weights, and
    zeros for the LoRA matrices.
    """
    if not train.lora.rank:
        return checkpoint.average(files)
    fixed, parts = checkpoint.load_weights(frozen), [checkpoint.load_weights(file) for file in files]
    total: dict[str, Tensor] = {}
    for part in parts:
        for name, weight in whole({**fixed, **part}, train).items():
            total[name] = weight.double() + total.get(name, 0.0)
    mean = {name: (weight / len(parts)).float() for name, weight in total.items()}
    thin = {name: torch.zeros_like(tensor) for name, tensor in parts[0].items()}
    return {**mean, **thin}


def whole(weights: Tensors, train: TrainConfig) -> dict[str, Tensor]:
    """The weights of a model without LoRA that computes the same."""
    if not train.lora.rank:
        return dict(weights)
    with torch.no_grad():
        return merged(weights, train.lora.rank, train.lora.alpha)


def build_updater(
    config: Config,
    model: TranslationModel,
    device: torch.device,
    dtype: torch.dtype,
    ranks: Ranks,
    threads: int | None = None,
    may_halve: bool = True,
    may_capture: bool = True,
    updates_left: int | None = None,
) -> Updater:
    """Build the updater that the config describes, for a model that is already on the device. `threads`: the
    CPU threads that compute parts of a batch, by default as many as `gradient_threads` allows. `may_halve`:
    see Updater. `may_capture`: whether packed updates on a GPU may be CUDA graphs. `updates_left`: the number
    of remaining updates, by default all.
    """
    train = config.train
    updates_left = train.max_updates if updates_left is None else updates_left
    compiled = is_compiled(config, device, updates_left)
    # precision: fp32 asks for exact products, in validations, too. Earlier translations in this process
    # may have allowed inexact ones.
    allow_tf32(device, dtype != torch.float32)
    if compiled:
        use_compiler_cache(config)
        say("torch.compile is on: the first update takes up to 20 seconds longer")
    elif train.compile is True:
        say("note: train.compile is not used here: only packed batches without checkpointing are compiled")
    # Copied weights and CUDA graphs are for one GPU: DDP sends gradients as they arrive, and FSDP2 shards the
    # weights. They do not go with checkpointing: a part that is computed again would find other weights.
    alone = device.type == "cuda" and ranks.size == 1 and not train.activation_checkpointing
    loss = build_loss(train)
    if updates_left > 0:  # a run that is done needs no teacher
        loss.start(config, device)
    objective: torch.nn.Module = Objective(
        model, loss, compiled, must_compile=train.compile is True, copies_weights=alone,
        alignment_weight=train.guided_alignment.weight,
    )  # fmt: skip
    if train.activation_checkpointing:
        checkpoint_activations(model.blocks)
    objective = wrap_distributed(objective, model.blocks, train, ranks, device)
    if isinstance(objective, DistributedDataParallel):
        _order_buckets(objective, device)
    # After wrapping: FSDP2 replaces the parameters.
    optimizer = build_optimizer(model, train)
    if threads is None:
        threads = gradient_threads(config, device, dtype)
    kind = Updater
    if may_capture and alone and train.packed is True:
        reasons = {
            "in float16": dtype == torch.float16,
            f"with loss: {train.loss}": not loss.captured,
            f"with optimizer: {train.optimizer}": not is_ours("optimizer", train.optimizer),
            "with log_gradients": train.log_gradients,
        }
        if what := next((reason for reason, holds in reasons.items() if holds), None):
            say(f"note: updates {what} are not captured as CUDA graphs, so small models train slower")
        else:
            kind = CapturedUpdater
    return kind(
        objective,
        optimizer,
        device,
        dtype,
        train.max_grad_norm,
        ranks,
        train.micro_batch_tokens,
        threads,
        may_halve,
        train.log_gradients,
    )


def build_loss(config: TrainConfig) -> Loss:
    """The loss of `train.loss`."""
    kind = part_class("loss", config.loss, "train.loss", Loss)
    return kind.of(config, **part_settings(kind, config.loss, "train.loss"))


def _order_buckets(objective: torch.nn.Module, device: torch.device) -> None:
    """Run an empty pass, because DDP orders the gradients of a bucket by their arrival in the first pass.

    With three or more ranks, the last bits of a sum depend on its position in the bucket, so a resumed run
    must begin with the order it had before. The pass adds no gradients and keeps the random state.
    """
    empty = [np.zeros(0, np.int64)]
    batch = make_batch(empty, empty).idle().to(device)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        objective(batch)[0].backward()
    objective.zero_grad(set_to_none=True)


def build_trial_updater(
    config: Config,
    model: TranslationModel,
    device: torch.device,
    dtype: torch.dtype,
    micro_batch_tokens: int = 0,
    threads: int | None = None,
    may_halve: bool = True,
    may_capture: bool = False,
) -> Updater:
    """Like `build_updater`, for a few updates that are only measured: on one device, and without compiling,
    which would take longer than the updates.
    """
    alone = {"compile": False, "parallel": "ddp", "fsdp_weights": "fp32", "share_muon": False}
    train = config.train.model_copy(update={**alone, "micro_batch_tokens": micro_batch_tokens})
    if threads is None:
        threads = gradient_threads(config, device, dtype)
    config = config.model_copy(update={"train": train})
    return build_updater(config, model, device, dtype, Ranks(), threads, may_halve, may_capture)
