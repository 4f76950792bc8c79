"""From a config and a model to what makes its updates."""

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.data.batches.batch import make_batch
from transformer_mt.device import allow_tf32
from transformer_mt.messages import say
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
    """The updater of the model, which is on the device, as the config says; `threads` of a CPU compute parts
    of a batch, by default as many as may. `may_halve`: see Updater. `may_capture`: whether packed updates of
    a GPU are CUDA graphs. `updates_left`: by default all.
    """
    train = config.train
    updates_left = train.max_updates if updates_left is None else updates_left
    compiled = is_compiled(config, device, updates_left)
    # precision: fp32 asks for exact products, also in validations; models that this process has translated
    # with before may have allowed others.
    allow_tf32(device, dtype != torch.float32)
    if compiled:
        use_compiler_cache(config)
        say("torch.compile is on: the first update takes some seconds more, up to 20")
    elif train.compile is True:
        say("note: train.compile is not used here: only packed batches without checkpointing are compiled")
    # DDP sends gradients as they come, FSDP2 has shards of the weights; a part that is computed again would
    # find other weights.
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
    """Let DDP put the gradients of a bucket in the order of their arrival, as it does after its first pass.

    From three ranks on, a sum's last bits depend on its position in the bucket. So a resumed run must begin
    with the order that it ended with. The pass adds nothing and draws no random numbers.
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
    """The same for some updates that are only measured: on one device, and not compiled, which takes longer
    than they do.
    """
    alone = {"compile": False, "parallel": "ddp", "fsdp_weights": "fp32", "share_muon": False}
    train = config.train.model_copy(update={**alone, "micro_batch_tokens": micro_batch_tokens})
    if threads is None:
        threads = gradient_threads(config, device, dtype)
    config = config.model_copy(update={"train": train})
    return build_updater(config, model, device, dtype, Ranks(), threads, may_halve, may_capture)
