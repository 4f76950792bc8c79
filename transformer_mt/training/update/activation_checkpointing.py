"""Activation checkpointing: computing activations twice instead of keeping them (Chen et al. 2016)."""

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint


def checkpoint_activations(layers: Iterable[nn.Module]) -> None:
    """From now on the forward pass of each layer keeps only its input; the backward pass computes the layer
    again, with the same dropout.

    Replaces each layer's `forward`, so that the names of the parameters stay, and what FSDP2 does before a
    layer happens outside.
    """
    for layer in layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward, *args):  # type: ignore[no-untyped-def]
    return checkpoint(forward, *args, use_reentrant=False)
