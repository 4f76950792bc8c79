"""BertForMaskedLM and GPT2LMHeadModel of transformers: an encoder and a decoder alone.

Both have their vectors as they are added, and not times sqrt(D): so theirs are ours times sqrt(D), and their
output projection is stored apart.
"""

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from transformer_mt.config.model_section import ModelConfig

Weights = Mapping[str, Tensor]
Named = Iterator[tuple[str, Tensor]]


def to_bert(c: ModelConfig, ours: Weights) -> dict[str, Tensor]:
    """Our weights as those of BertForMaskedLM."""
    return _independent(_bert(c, ours))


def _bert(c: ModelConfig, ours: Weights) -> Named:
    tokens = ours["src_embedding.tokens.weight"]
    yield "bert.embeddings.word_embeddings.weight", tokens * math.sqrt(c.d_model)
    yield "bert.embeddings.position_embeddings.weight", ours["src_embedding.positions.embedding.weight"]
    yield "bert.embeddings.token_type_embeddings.weight", tokens.new_zeros(2, c.d_model)
    yield from _same(ours, "src_embedding.norm", "bert.embeddings.LayerNorm")
    for i in range(c.num_encoder_layers):
        layer, foreign = f"encoder.layers.{i}", f"bert.encoder.layer.{i}"
        for part in ("query", "key", "value"):
            yield from _same(ours, f"{layer}.self_attention.{part}", f"{foreign}.attention.self.{part}")
        yield from _same(ours, f"{layer}.self_attention.output", f"{foreign}.attention.output.dense")
        yield from _same(ours, f"{layer}.self_residual.norm", f"{foreign}.attention.output.LayerNorm")
        yield from _same(ours, f"{layer}.feed_forward.inner", f"{foreign}.intermediate.dense")
        yield from _same(ours, f"{layer}.feed_forward.outer", f"{foreign}.output.dense")
        yield from _same(ours, f"{layer}.ffn_residual.norm", f"{foreign}.output.LayerNorm")
    yield from _same(ours, "head.inner", "cls.predictions.transform.dense")
    yield from _same(ours, "head.norm", "cls.predictions.transform.LayerNorm")
    yield "cls.predictions.decoder.weight", tokens if c.tie_embeddings else ours["output.weight"]
    bias = ours["output.bias"] if c.output_bias else tokens.new_zeros(len(tokens))
    yield "cls.predictions.bias", bias
    yield "cls.predictions.decoder.bias", bias


def to_gpt2(c: ModelConfig, ours: Weights) -> dict[str, Tensor]:
    """Our weights as those of GPT2LMHeadModel, whose matrices stand the other way round."""
    return _independent(_gpt2(c, ours))


def _gpt2(c: ModelConfig, ours: Weights) -> Named:
    tokens = ours["tgt_embedding.tokens.weight"]
    yield "transformer.wte.weight", tokens * math.sqrt(c.d_model)
    yield "transformer.wpe.weight", ours["tgt_embedding.positions.embedding.weight"]
    for i in range(c.num_decoder_layers):
        layer, foreign = f"decoder.layers.{i}", f"transformer.h.{i}"
        yield from _same(ours, f"{layer}.self_residual.norm", f"{foreign}.ln_1")
        parts = [f"{layer}.self_attention.{part}" for part in ("query", "key", "value")]
        yield f"{foreign}.attn.c_attn.weight", torch.cat([ours[f"{part}.weight"] for part in parts]).T
        yield f"{foreign}.attn.c_attn.bias", torch.cat([ours[f"{part}.bias"] for part in parts])
        yield from _transposed(ours, f"{layer}.self_attention.output", f"{foreign}.attn.c_proj")
        yield from _same(ours, f"{layer}.ffn_residual.norm", f"{foreign}.ln_2")
        yield from _transposed(ours, f"{layer}.feed_forward.inner", f"{foreign}.mlp.c_fc")
        yield from _transposed(ours, f"{layer}.feed_forward.outer", f"{foreign}.mlp.c_proj")
    yield from _same(ours, "decoder.final_norm", "transformer.ln_f")
    yield "lm_head.weight", tokens if c.tie_embeddings else ours["output.weight"]


def _same(ours: Weights, name: str, foreign: str) -> Named:
    for kind in ("weight", "bias"):
        yield f"{foreign}.{kind}", ours[f"{name}.{kind}"]


def _transposed(ours: Weights, name: str, foreign: str) -> Named:
    yield f"{foreign}.weight", ours[f"{name}.weight"].T
    yield f"{foreign}.bias", ours[f"{name}.bias"]


def _independent(named: Named) -> dict[str, Tensor]:
    """Tensors that share no memory, as safetensors needs."""
    return {name: tensor.detach().float().contiguous().clone() for name, tensor in named}
