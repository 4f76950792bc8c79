"""Training of a model by several ranks. DDP or FSDP2 sums the gradients; FSDP2 also divides the weights and
the optimizer's state, so that each rank holds one shard of each tensor (DTensor).

Checkpoints hold only full tensors, so any number of ranks can read them. A plain tensor counts as a full one.
"""

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from transformer_mt.checkpoint import Tensors, load_model_weights
from transformer_mt.config import TrainConfig
from transformer_mt.ranks import Ranks


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor with the shards of all ranks. A collective operation: all ranks must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local_shard(like: Tensor, values: Tensor) -> Tensor:
    """This rank's shard of `values`, a full tensor that is on the device, divided as `like` is."""
    if not hasattr(like, "full_tensor"):
        return values
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(values, like.device_mesh, like.placements, src_data_rank=None)


def is_sharded(tensor: Tensor) -> bool:
    """True if this rank holds only some rows of it."""
    return hasattr(tensor, "full_tensor")


def local_rows(tensor: Tensor) -> Tensor:
    """This rank's rows of it, as a plain tensor that shares their memory."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


@torch.no_grad()
def copy_full(tensor: Tensor, values: Tensor) -> None:
    """Copy full `values` into the tensor; each rank takes its own shard."""
    tensor.copy_(local_shard(tensor, values.to(tensor.device)))


def on_cpu(tensor: Tensor, keep: bool = True) -> Tensor | None:
    """The full tensor on the CPU; None on a rank that need not `keep` it. A collective operation."""
    full = full_tensor(tensor.detach())
    return full.cpu().contiguous() if keep else None


def full_weights(model: nn.Module, keep: bool = True) -> dict[str, Tensor]:
    """The model's full parameters under canonical names, tied ones once, on the CPU; none on a rank that need
    not `keep` them. A collective operation.
    """
    full = {name: on_cpu(parameter, keep) for name, parameter in model.named_parameters()}
    return {name: weight for name, weight in full.items() if weight is not None}


def load_full_weights(model: nn.Module, weights: Tensors, location: str) -> None:
    """`checkpoint.load_model_weights` for a model whose parameters may be sharded."""
    load_model_weights(model, weights, location, copy_full)


def wrap_distributed(
    objective: nn.Module, layers: list[nn.Module], train: TrainConfig, ranks: Ranks, device: torch.device
) -> nn.Module:
    """The objective wrapped so that gradients are averaged over the ranks.

    `ddp` replicates everything on each rank; `fsdp` shards the weights of each of `layers`, and the rest
    together.
    """
    if train.parallel == "fsdp":
        # Slow to import, seldom used
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = dist.init_device_mesh(device.type, (ranks.size,))
        for layer in layers:
            if train.fsdp_weights == "bf16":
                # The norms, and what is between the layers, compute in float32, as in one process.
                norms: list[nn.Module] = [
                    module for module in layer.modules() if isinstance(module, nn.LayerNorm)
                ]
                fully_shard(norms, mesh=mesh)
                policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
                fully_shard(layer, mesh=mesh, mp_policy=policy)
            else:
                fully_shard(layer, mesh=mesh)
        fully_shard(objective, mesh=mesh)
        return objective
    if ranks.size == 1:
        return objective
    # Buffers are not broadcast: each rank computes its own tables, one perhaps in inference mode during a
    # validation.
    devices = [device] if device.type == "cuda" else None
    with warnings.catch_warnings():
        # Torch 2.13 deprecates the option; its successor still broadcasts buffers once, at the start.
        warnings.simplefilter("ignore", FutureWarning)
        return DistributedDataParallel(
            objective, device_ids=devices, broadcast_buffers=False, gradient_as_bucket_view=True
        )


def no_grad_sync(objective: nn.Module, last: bool) -> AbstractContextManager[object]:
    """Within it, gradients are only accumulated on this rank, unless this is the `last` batch of an update.

    FSDP2 reduces and shards gradients after each batch: full ones may not fit the memory.
    """
    alone = isinstance(objective, DistributedDataParallel) and not last
    return cast(DistributedDataParallel, objective).no_sync() if alone else nullcontext()


def needs_equal_passes(objective: nn.Module) -> bool:
    """True if all ranks must make the same number of forward passes: FSDP2 gathers weights in each."""
    return hasattr(objective, "reshard")
