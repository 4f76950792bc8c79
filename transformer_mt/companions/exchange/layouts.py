"""The weights of other software's models: names, permutations and scales, in both directions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, PAD, Numbering
from transformer_mt.errors import InputError
from transformer_mt.model.interface import NEVER
from transformer_mt.model.positions import sinusoids

# Largest difference between weights stored in half precision and the formula that they come from.
_HALF = 2e-3
BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
_UNUSED_POSITIONS = 2  # rows of BART's before the first position


@dataclass(frozen=True)
class ForeignWeight:
    """A weight of ours and its name there."""

    ours: str
    theirs: str
    stream: tuple[int, ...] = ()
    """Its axes along the residual stream."""
    vocabulary: Literal["src", "tgt"] | None = None
    """The vocabulary whose pieces its rows stand for."""


def foreign_weights(c: ModelConfig, shared: bool) -> Iterator[ForeignWeight]:
    """Every weight but the bias of the output, tied ones once."""
    if c.tie_embeddings and shared:
        yield ForeignWeight("src_embedding.tokens.weight", "model.shared.weight", (1,), "src")
    else:
        for ours, theirs in (("src", "encoder"), ("tgt", "decoder")):
            name = f"model.{theirs}.embed_tokens.weight"
            yield ForeignWeight(f"{ours}_embedding.tokens.weight", name, (1,), ours)  # type: ignore[arg-type]
    if not c.tie_embeddings:
        yield ForeignWeight("output.weight", "lm_head.weight", (1,), "tgt")
    depths = {"encoder": c.num_encoder_layers, "decoder": c.num_decoder_layers}
    for side, depth in depths.items():
        for number in range(depth):
            yield from _layer(f"{side}.layers.{number}", f"model.{side}.layers.{number}", side == "decoder")
        if c.norm == "pre":
            yield from _norm(f"{side}.final_norm", f"model.{side}.layer_norm")
    if c.embedding_norm:
        for ours, theirs in (("src", "encoder"), ("tgt", "decoder")):
            yield from _norm(f"{ours}_embedding.norm", f"model.{theirs}.layernorm_embedding")


def tied_names(c: ModelConfig, shared: bool) -> tuple[str, ...]:
    """All names of the matrix that several embeddings, or an embedding and the output, share."""
    if not c.tie_embeddings:
        return ()
    of_output = ("model.decoder.embed_tokens.weight", "lm_head.weight")
    return ("model.shared.weight", "model.encoder.embed_tokens.weight", *of_output) if shared else of_output


def _layer(ours: str, theirs: str, is_decoder: bool) -> Iterator[ForeignWeight]:
    attentions = [("self", "self_attn"), ("cross", "encoder_attn")][: 1 + is_decoder]
    for name, foreign in attentions:
        for part, letter in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from _from_stream(f"{ours}.{name}_attention.{part}", f"{theirs}.{foreign}.{letter}_proj")
        yield from _to_stream(f"{ours}.{name}_attention.output", f"{theirs}.{foreign}.out_proj")
        yield from _norm(f"{ours}.{name}_residual.norm", f"{theirs}.{foreign}_layer_norm")
    yield from _from_stream(f"{ours}.feed_forward.inner", f"{theirs}.fc1")
    yield from _to_stream(f"{ours}.feed_forward.outer", f"{theirs}.fc2")
    yield from _norm(f"{ours}.ffn_residual.norm", f"{theirs}.final_layer_norm")


def _from_stream(ours: str, theirs: str) -> Iterator[ForeignWeight]:
    yield ForeignWeight(f"{ours}.weight", f"{theirs}.weight", (1,))
    yield ForeignWeight(f"{ours}.bias", f"{theirs}.bias")


def _to_stream(ours: str, theirs: str) -> Iterator[ForeignWeight]:
    yield ForeignWeight(f"{ours}.weight", f"{theirs}.weight", (0,))
    yield ForeignWeight(f"{ours}.bias", f"{theirs}.bias", (0,))


def _norm(ours: str, theirs: str) -> Iterator[ForeignWeight]:
    yield ForeignWeight(f"{ours}.weight", f"{theirs}.weight", (0,))
    yield ForeignWeight(f"{ours}.bias", f"{theirs}.bias", (0,))


def stream_order(d_model: int) -> Tensor:
    """For each dimension of their residual stream, the index of the same dimension in ours."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def positions_there(length: int, d_model: int) -> Tensor:
    """(length, D) sinusoids as they have them."""
    return sinusoids(length, d_model)[:, stream_order(d_model)]


def to_huggingface(
    c: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[Sequence[int]], positions: int
) -> dict[str, Tensor]:
    """Convert our weights to theirs. `rows` are our ids in the order of their ids: one list if both sides
    share a vocabulary, else two.
    """
    order, of_side = stream_order(c.d_model), dict(zip(("src", "tgt"), (rows[0], rows[-1])))
    tensors: dict[str, Tensor] = {}
    for weight in foreign_weights(c, len(rows) == 1):
        tensor = weights[weight.ours]
        for axis in weight.stream:
            tensor = tensor.index_select(axis, order)
        tensors[weight.theirs] = (
            tensor if weight.vocabulary is None else tensor[list(of_side[weight.vocabulary])]
        )
    if c.position == "learned":
        for ours, name in zip(("src", "tgt"), POSITIONS):
            table = weights[f"{ours}_embedding.positions.embedding.weight"].index_select(1, order)
            tensors[name] = torch.cat([table.new_zeros(_UNUSED_POSITIONS, c.d_model), table])
    if c.position != "sinusoidal_fairseq":  # M2M-100 keeps neither a bias nor its sinusoids
        bias = weights["output.bias"][list(rows[-1])] if c.output_bias else torch.zeros(len(rows[-1]))
        tensors[BIAS] = bias.masked_fill(bias <= NEVER / 2, 0.0)[None]
    if c.position == "sinusoidal":
        tensors |= dict.fromkeys(POSITIONS, positions_there(positions, c.d_model))
    return {name: tensor.detach().float().contiguous().clone() for name, tensor in tensors.items()}


def from_huggingface(
    c: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[Sequence[int]], never: Sequence[int]
) -> dict[str, Tensor]:
    """Convert their weights to ours, in float32. `rows` are their ids in the order of ours: one list if both
    sides share a vocabulary, else two. `never` are our ids of the pieces that are never written.
    """
    order, of_side = stream_order(c.d_model).argsort(), dict(zip(("src", "tgt"), (rows[0], rows[-1])))
    tensors: dict[str, Tensor] = {}
    for weight in foreign_weights(c, len(rows) == 1):
        tensor = weights[weight.theirs].float()
        for axis in weight.stream:
            tensor = tensor.index_select(axis, order)
        tensors[weight.ours] = (
            tensor if weight.vocabulary is None else tensor[list(of_side[weight.vocabulary])]
        )
    if c.output_bias:
        bias = weights[BIAS][0].float() if BIAS in weights else torch.zeros(len(rows[-1]))
        bias = bias[list(rows[-1])]
        bias[list(never)] = NEVER
        tensors["output.bias"] = bias
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


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


def weights_of(
    folder: Path, model: ModelConfig, tensors: Mapping[str, Tensor], numberings: list[Numbering]
) -> dict[str, Tensor]:
    """Convert their weights to ours. InputError if one is missing, has the wrong size, or does not belong to
    this network.
    """
    needed = {place.theirs: place for place in foreign_weights(model, len(numberings) == 1)}
    # A file may keep a tied matrix under any one of its names.
    tied = tied_names(model, len(numberings) == 1)
    if kept := next((name for name in tied if name in tensors), None):
        tensors = {**{name: tensors[kept] for name in tied if name in needed}, **tensors}
    if missing := [name for name in needed if name not in tensors]:
        raise InputError(f"{folder}: the weights must hold {missing[0]}, but do not")
    extra = [name for name in tensors if name not in needed and not _is_known(name)]
    if extra:
        raise InputError(f"{folder}: the weights hold {extra[0]}, which this kind of model does not have")
    for name in POSITIONS:
        if name in tensors:
            expected = positions_there(*tensors[name].shape)
            if not torch.allclose(tensors[name].float(), expected, atol=_HALF):
                raise InputError(f"{folder}: {name} is not a table of sinusoids")
    for name, place in needed.items():
        if place.vocabulary is not None:
            size = len(numberings[0 if place.vocabulary == "src" else -1].order)
            if len(tensors[name]) != size:
                raise InputError(
                    f"{folder}: {name} must have {size} rows (tokens), but has {len(tensors[name])}"
                )
    rows = [numbering.foreign_ids() for numbering in numberings]
    return from_huggingface(model, tensors, rows, never=(PAD, BOS))


def _is_known(name: str) -> bool:
    """True for the output bias, other names of tied weights, and tables of embeddings or positions."""
    tables = ("shared.weight", "embed_tokens.weight", "embed_positions.weights")
    return name in (BIAS, "lm_head.weight", *POSITIONS) or name.endswith(tables)
