"""Tensors of which each rank may hold a shard (DTensor, under FSDP2), and their full values.

Checkpoints hold full tensors only, so that any number of ranks reads them. A plain tensor is its own full
tensor.
"""

import torch
from torch import Tensor, nn

from transformer_mt.checkpoint import Tensors, load_model_weights


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor with the shards of all ranks. A collective operation: all ranks must call it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local_shard(like: Tensor, values: Tensor) -> Tensor:
    """This rank's shard of the full `values` on the device, distributed as `like` is."""
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
