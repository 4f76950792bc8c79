"""The Transformer of transformers: MarianMTModel (post-norm), PegasusForConditionalGeneration (pre-norm),
M2M100ForConditionalGeneration (pre-norm, with fairseq's sinusoids); with learned positions
BartForConditionalGeneration (post-norm), MBartForConditionalGeneration (pre-norm).

All have the paper's layers under the same names. Their sinusoids have all sines before all cosines, so the
dimensions of the residual stream stand in that order: the even ones, then the odd ones.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.interface import NEVER
from transformer_mt.model.positions import sinusoids

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
    """Whose pieces its rows are."""


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
    """All names of the matrix that is several embeddings, or an embedding and the output."""
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
    """Our dimension of the residual stream for each of theirs."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def positions_there(length: int, d_model: int) -> Tensor:
    """(length, D) sinusoids as they have them."""
    return sinusoids(length, d_model)[:, stream_order(d_model)]


def to_huggingface(
    c: ModelConfig, weights: Mapping[str, Tensor], rows: Sequence[Sequence[int]], positions: int
) -> dict[str, Tensor]:
    """Our weights as theirs. `rows` are our ids in the order of their ids, of both sides or of each."""
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
    """Their weights as ours, in float32. `rows` are their ids in the order of ours, of both sides or of each;
    `never` are our ids of what is never written.
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
