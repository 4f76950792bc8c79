"""From a config to a model: the only module where a kind is chosen by its name."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.companion import Kind, shown
from transformer_mt.config.build_part import part_class, part_settings
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import EOS
from transformer_mt.errors import InputError
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.interface import TranslationModel, alignment_layer
from transformer_mt.model.language_models import DecoderModel, EncoderModel, PredictionHead
from transformer_mt.model.masks import Positions
from transformer_mt.model.positions import AddedPositions, NoPositions
from transformer_mt.model.transformer import (
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    Residual,
    Transformer,
    scale_by_depth,
)
from transformer_mt.model.variants.attention_scores import AttentionScore, ScaledDot
from transformer_mt.model.variants.position_bias import PositionBias
from transformer_mt.model.variants.recurrent import (
    BahdanauDecoder,
    LuongDecoder,
    Recurrent,
    RecurrentEncoder,
    SourceAttention,
)
from transformer_mt.model.variants.ssru import SSRU
from transformer_mt.model.variants.variants import PredictedCentre, VariantAttention
from transformer_mt.parts import is_ours
from transformer_mt.settings.part import PartName

Role = Literal["encoder", "decoder", "cross"]
Block = TypeVar("Block", bound=nn.Module)


def build_model(
    config: ModelConfig,
    src_vocab: int,
    tgt_vocab: int,
    shared_vocab: bool,
    max_length: int,
    guided_layer: Literal["auto"] | int | None = None,
) -> TranslationModel:
    """Build a newly initialised model. Only learned positions and the score `location` use `max_length`.
    `guided_layer`, counted from 1, is the decoder layer whose first head is or was trained to align words.
    """
    c = config
    src_tokens = nn.Embedding(src_vocab, c.d_model)
    three_way = c.tie_embeddings and shared_vocab
    tgt_tokens = src_tokens if three_way else nn.Embedding(tgt_vocab, c.d_model)
    output = nn.Linear(c.d_model, tgt_vocab, bias=c.output_bias)
    if c.tie_embeddings:
        output.weight = tgt_tokens.weight
    build = _recurrent if c.kind == "recurrent" else _transformer
    model = build(c, src_tokens, tgt_tokens, output, max_length)
    if c.init == "depth_scaled":
        scale_by_depth(model)
    if guided_layer is not None:
        usual = alignment_layer(c.num_decoder_layers)
        model.guided_layer = usual if guided_layer == "auto" else guided_layer - 1
    return model


def _transformer(
    c: ModelConfig, src_tokens: nn.Embedding, tgt_tokens: nn.Embedding, output: nn.Linear, max_length: int
) -> TranslationModel:
    """Build a Transformer with encoder and decoder, or with one of them, as `kind` says."""

    def feed_forward() -> nn.Module:
        kind = _part("feed_forward", c.feed_forward, "model.feed_forward", nn.Module)
        return _checked_block(kind(c.d_model, c.d_ff, c.ffn_dropout), c.d_model, "model.feed_forward")

    def norm() -> nn.Module:
        kind = _part("norm", c.norm_kind, "model.norm_kind", nn.Module)
        return _checked_block(kind(c.d_model), c.d_model, "model.norm_kind")

    def residual() -> Residual:
        return _part("residual", c.norm, "model.norm", Residual)(norm, c.dropout)

    def positions() -> AddedPositions:
        kind = part_class("position", c.position, "model.position", (AddedPositions, PositionBias))
        if issubclass(kind, AddedPositions):  # an encoder alone reads BOS, too
            most = max_length + (c.kind == "encoder")
            return kind.of(c.d_model, most, **part_settings(kind, c.position, "model.position"))
        return NoPositions()

    def final_norm() -> nn.Module:
        kind = part_class("residual", c.norm, "model.norm", Residual)
        return norm() if kind.final_norm else nn.Identity()

    def embedding(tokens: nn.Embedding, first: int | Literal["zeros"] | None = None) -> Embedding:
        return Embedding(tokens, positions(), c.dropout, first, norm() if c.embedding_norm else None)

    def encoder() -> Encoder:
        layers = [
            EncoderLayer(build_attention(c, "encoder"), feed_forward(), residual)
            for _ in range(c.num_encoder_layers)
        ]
        return Encoder(_shared(layers, c.share_layers), final_norm(), c.layer_drop)

    def decoder(has_source: bool) -> Decoder:
        layers = [
            DecoderLayer(
                SSRU(c.d_model) if c.autoregression == "ssru" else build_attention(c, "decoder"),
                build_attention(c, "cross") if has_source else None,
                feed_forward(),
                residual,
            )
            for _ in range(c.num_decoder_layers)
        ]
        return Decoder(_shared(layers, c.share_layers), final_norm(), c.layer_drop)

    if c.kind == "encoder":
        block = part_class("feed_forward", c.feed_forward, "model.feed_forward", nn.Module)
        head = PredictionHead(c.d_model, getattr(block, "activation", F.gelu))
        return EncoderModel(embedding(src_tokens), encoder(), head, output)
    if c.kind == "decoder":
        return DecoderModel(embedding(tgt_tokens), decoder(has_source=False), output)
    firsts: dict[str, int | Literal["zeros"]] = {"eos": EOS, "zeros": "zeros"}
    return Transformer(
        embedding(src_tokens),
        embedding(tgt_tokens, firsts.get(c.decoder_start)),
        encoder(),
        decoder(has_source=True),
        output,
    )


def _shared(layers: list[Block], is_shared: bool) -> list[Block]:
    """The layers. With `is_shared` all use the parameters of the first one, as in the Universal
    Transformer (Dehghani et al. 2019), but without its adaptive halting.
    """
    for layer in layers[1:] if is_shared else ():
        for name, parameter in layers[0].named_parameters():
            module, _, own = name.rpartition(".")
            setattr(layer.get_submodule(module), own, parameter)
    return layers


def _recurrent(
    c: ModelConfig, src_tokens: nn.Embedding, tgt_tokens: nn.Embedding, output: nn.Linear, max_length: int
) -> Recurrent:
    a, cell = c.attention, c.recurrent.cell
    score = _score(a.scores().cross, 1, c.d_model, max_length)
    centre = PredictedCentre(c.d_model) if a.cross == "local_p" else None
    window = 0 if a.cross == "global" else a.cross_window
    attention = SourceAttention(c.d_model, c.attention_dropout, score, window, centre, a.hard)
    kind = BahdanauDecoder if c.recurrent.decoder == "bahdanau" else LuongDecoder
    return Recurrent(
        Embedding(src_tokens, NoPositions(), c.dropout),
        Embedding(tgt_tokens, NoPositions(), c.dropout),
        RecurrentEncoder(cell, c.d_model, c.num_encoder_layers, c.dropout),
        kind(cell, c.d_model, c.num_decoder_layers, c.dropout, attention),
        output,
    )


def build_attention(config: ModelConfig, role: Role) -> MultiHeadAttention:
    """The attention of one role in a Transformer: the usual one, unless the config exchanges a part of it."""
    c, a = config, config.attention
    score_kind = getattr(a.scores(), role)
    position_bias: PositionBias | None = None
    centre: PredictedCentre | None = None
    if role == "cross":  # source and target positions are not comparable: no position bias
        window, hard = 0 if a.cross == "global" else a.cross_window, a.hard
        centre = PredictedCentre(c.d_model) if a.cross == "local_p" else None
    else:
        window, hard, position_bias = a.window, False, _position_bias(c)
    if score_kind == "scaled_dot" and not (position_bias or window or hard):
        return MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout, c.num_kv_heads, c.qk_norm)
    score = _score(score_kind, c.num_heads, c.d_model // c.num_heads)
    return VariantAttention(
        c.d_model, c.num_heads, c.attention_dropout, score, position_bias, window, centre, hard,
        c.num_kv_heads, c.qk_norm,
    )  # fmt: skip


def _position_bias(c: ModelConfig) -> PositionBias | None:
    key, head_width = "model.position", c.d_model // c.num_heads
    kind = part_class("position", c.position, key, (AddedPositions, PositionBias))
    if not issubclass(kind, PositionBias):
        return None
    bias = kind.of(c.num_heads, head_width, **part_settings(kind, c.position, key))
    return bias if is_ours("position", c.position) else _checked_position(bias, c.num_heads, head_width)


def _score(name: PartName, num_heads: int, head_width: int, max_length: int = 0) -> AttentionScore:
    key = "model.attention.score"
    kind = part_class("attention_score", name, key, AttentionScore)
    score = kind.of(num_heads, head_width, max_length, **part_settings(kind, name, key))
    return score if is_ours("attention_score", name) else _checked_score(score, num_heads, head_width)


def _part(kind: Kind, name: PartName, key: str, base: type[Block]) -> Callable[..., Block]:
    """A function that builds the named part from its other arguments; the part's settings are filled in."""
    made = part_class(kind, name, key, base)
    return partial(made, **part_settings(made, name, key))


_TRIED = 2, 3
"""Numbers of queries and keys with which a part from outside this package is tried."""


def _checked_score(score: AttentionScore, num_heads: int, head_width: int) -> AttentionScore:
    """The score that a companion or a program brings, tried once. InputError if its result has another shape
    or no gradient: the model would learn something else, without a word.
    """
    queries, keys = _TRIED
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False), torch.enable_grad():
        q, k = (torch.randn(1, num_heads, n, head_width, requires_grad=True) for n in _TRIED)
        scores = score(q, score.keys(k))
    shape = (1, num_heads, queries, keys)
    _check_shape(scores, shape, f"{shown(type(score))} must give scores [batch, heads, queries, keys]")
    if not scores.requires_grad:
        raise InputError(f"{shown(type(score))} must give scores with a gradient, but they have none")
    return score


def _checked_position(bias: PositionBias, num_heads: int, head_width: int) -> PositionBias:
    """The same for a position bias."""
    queries, keys = _TRIED
    q, weights = (torch.zeros(1, num_heads, *sides) for sides in ((queries, head_width), _TRIED))
    positions, name = Positions.of(queries, keys, q.device), shown(type(bias))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        _check_shape(bias.rotate(q, positions), q.shape, f"{name}.rotate must keep the shape of the queries")
        added, values = bias.score_bias(ScaledDot(), q, positions), bias.value_bias(weights, positions)
    if added is not None and not (isinstance(added, Tensor) and _broadcasts(added.shape, weights.shape)):
        _check_shape(added, weights.shape, f"{name}.score_bias must give [batch, heads, queries, keys]")
    if values is not None:
        _check_shape(values, q.shape, f"{name}.value_bias must give [batch, heads, queries, width]")
    return bias


def _checked_block(block: Block, d_model: int, key: str) -> Block:
    """The same for a norm or a feed-forward network: it must keep the shape."""
    if not type(block).__module__.startswith(("transformer_mt.", "torch.")):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            x = torch.randn(*_TRIED, d_model)
            _check_shape(block(x), x.shape, f"`{key}`: {shown(type(block))} must keep the shape of its input")
    return block


def _broadcasts(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """True if a tensor of this shape can be added to one of the wanted shape."""
    return len(shape) <= len(wanted) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(wanted)))


def _check_shape(result: Any, shape: Sequence[int], must: str) -> None:
    """InputError unless the result is a tensor of this shape."""
    if not isinstance(result, Tensor):
        raise InputError(f"{must}, but gives {shown(result)}")
    if result.shape != torch.Size(shape) or not result.is_floating_point():
        raise InputError(
            f"{must}, here {list(shape)} numbers, but gives {list(result.shape)} of {result.dtype}"
        )
