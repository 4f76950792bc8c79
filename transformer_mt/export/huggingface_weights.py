"""A trained Transformer under the names of transformers' Pegasus (pre-norm) or Marian (post-norm).

Both have the paper's layers. Their sinusoids are the paper's with all sines before all cosines, so the
dimensions of the residual stream are written in that order: the even ones, then the odd ones.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.model.positions import sinusoids
from transformer_mt.model.transformer import DecoderLayer, EncoderLayer, Residual, Transformer

Named = Iterator[tuple[str, Tensor]]


def weights(model: Transformer, num_positions: int) -> dict[str, Tensor]:
    """The tensors of a model with sinusoidal positions, by the names transformers reads them by. Tied
    weights are there once.
    """
    d_model = model.src_embedding.tokens.embedding_dim
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
    src, tgt = model.src_embedding.tokens.weight, model.tgt_embedding.tokens.weight
    positions = sinusoids(num_positions, d_model)
    found: dict[str, Tensor] = {}
    if src is tgt:
        found["model.shared.weight"] = src[:, order]
    else:
        found["model.encoder.embed_tokens.weight"] = src[:, order]
        found["model.decoder.embed_tokens.weight"] = tgt[:, order]
    if model.output.weight is not tgt:
        found["lm_head.weight"] = model.output.weight[:, order]
    found["final_logits_bias"] = torch.zeros(1, len(tgt))
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        found[f"model.{side}.embed_positions.weight"] = positions[:, order]
        for number, layer in enumerate(stack.layers):
            found |= dict(_layer(f"model.{side}.layers.{number}", layer, order))
        if isinstance(stack.final_norm, nn.LayerNorm):
            found |= dict(_norm(f"model.{side}.layer_norm", stack.final_norm, order))
    return {name: tensor.detach().float().contiguous().clone() for name, tensor in found.items()}


def _layer(name: str, layer: nn.Module, order: Tensor) -> Named:
    assert isinstance(layer, EncoderLayer | DecoderLayer)
    sublayers: list[tuple[str, Any, Residual]] = [("self_attn", layer.self_attention, layer.self_residual)]
    if isinstance(layer, DecoderLayer):
        sublayers.append(("encoder_attn", layer.cross_attention, layer.cross_residual))
    for sublayer, attention, residual in sublayers:
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from _permuted_inputs(f"{name}.{sublayer}.{theirs}_proj", getattr(attention, ours), order)
        yield from _permuted_outputs(f"{name}.{sublayer}.out_proj", attention.output, order)
        yield from _norm(f"{name}.{sublayer}_layer_norm", residual.norm, order)
    ffn: Any = layer.feed_forward
    yield from _permuted_inputs(f"{name}.fc1", ffn.inner, order)
    yield from _permuted_outputs(f"{name}.fc2", ffn.outer, order)
    yield from _norm(f"{name}.final_layer_norm", layer.ffn_residual.norm, order)


def _permuted_inputs(name: str, linear: nn.Linear, order: Tensor) -> Named:
    """A layer whose input is the residual stream."""
    yield f"{name}.weight", linear.weight[:, order]
    yield f"{name}.bias", linear.bias


def _permuted_outputs(name: str, linear: nn.Linear, order: Tensor) -> Named:
    """A layer whose output is added to the residual stream."""
    yield f"{name}.weight", linear.weight[order]
    yield f"{name}.bias", linear.bias[order]


def _norm(name: str, norm: nn.LayerNorm, order: Tensor) -> Named:
    yield f"{name}.weight", norm.weight[order]
    yield f"{name}.bias", norm.bias[order]
