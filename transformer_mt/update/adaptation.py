"""Trained weights of a model: all, or with `train.freeze` and `train.lora` a part of them.

A checkpoint holds what is trained; what is not is written once. The model in the run's folder is whole.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Tensors
from transformer_mt.config import TrainConfig
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.variants.low_rank import add_lora, merged

_PARTS = {
    "embeddings": ("src_embedding.", "tgt_embedding."),
    "encoder": ("encoder.",),
    "decoder": ("decoder.",),
}


def adapt(model: TranslationModel, train: TrainConfig) -> None:
    """Freeze what the config freezes, and add the matrices of LoRA; all else of such a model is frozen."""
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
    """True if vectors of pieces change."""
    return not train.lora.rank and "embeddings" not in train.freeze


def is_partial(train: TrainConfig) -> bool:
    """True if only a part of the weights is trained."""
    return bool(train.freeze) or train.lora.rank > 0


def split(model: nn.Module, weights: Tensors) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(what is trained, what is frozen) of the model's weights."""
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return (
        {name: tensor for name, tensor in weights.items() if name in trained},
        {name: tensor for name, tensor in weights.items() if name not in trained},
    )


def averaged(files: Iterable[Path], train: TrainConfig, frozen: Path) -> dict[str, Tensor]:
    """The mean of what is trained in several checkpoints. With LoRA the mean of the whole weights, beside
    products that are zero.
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
