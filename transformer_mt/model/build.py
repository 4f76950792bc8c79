"""From a config to a model: the only place where a kind is chosen by its name."""

from typing import Literal

import torch.nn.functional as F
from torch import nn

from transformer_mt.config import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.positions import LearnedPositions, NoPositions, SinusoidalPositions
from transformer_mt.model.relations import Alibi, Relative, Rotary
from transformer_mt.model.scores import Additive, Cosine, Dot, Euclidean, General, ScaledDot
from transformer_mt.model.transformer import (
    Decoder,
    DecoderLayer,
    Embedding,
    Encoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    Residual,
    Transformer,
)
from transformer_mt.model.variants import PredictedCentre, VariantAttention

Role = Literal["encoder", "decoder", "cross"]


def build_model(
    config: ModelConfig, src_vocab: int, tgt_vocab: int, shared_vocab: bool, max_length: int
) -> Transformer:
    """A freshly initialised model; `max_length` is only used by learned positions."""
    c = config

    def attention(role: Role) -> MultiHeadAttention:
        return build_attention(c, role)

    def feed_forward() -> nn.Module:
        if c.activation == "swiglu":
            return GatedFeedForward(c.d_model, c.d_ff, c.ffn_dropout)
        return FeedForward(c.d_model, c.d_ff, F.gelu if c.activation == "gelu" else F.relu, c.ffn_dropout)

    def residual() -> Residual:
        return Residual(c.d_model, c.norm == "pre", c.dropout)

    def positions() -> nn.Module:
        if c.position == "learned":
            return LearnedPositions(c.d_model, max_length)
        return SinusoidalPositions(c.d_model) if c.position == "sinusoidal" else NoPositions()

    def final_norm() -> nn.Module:
        return nn.LayerNorm(c.d_model) if c.norm == "pre" else nn.Identity()

    src_tokens = nn.Embedding(src_vocab, c.d_model)
    three_way = c.tie_embeddings and shared_vocab
    tgt_tokens = src_tokens if three_way else nn.Embedding(tgt_vocab, c.d_model)
    output = nn.Linear(c.d_model, tgt_vocab, bias=False)
    if c.tie_embeddings:
        output.weight = tgt_tokens.weight
    return Transformer(
        Embedding(src_tokens, positions(), c.dropout),
        Embedding(tgt_tokens, positions(), c.dropout),
        Encoder(
            [EncoderLayer(attention("encoder"), feed_forward(), residual) for _ in range(c.num_encoder_layers)],
            final_norm(),
        ),
        Decoder(
            [
                DecoderLayer(attention("decoder"), attention("cross"), feed_forward(), residual)
                for _ in range(c.num_decoder_layers)
            ],
            final_norm(),
        ),
        output,
    )


def build_attention(config: ModelConfig, role: Role) -> MultiHeadAttention:
    """The attention of one role: the usual one, unless the config exchanges a part of it."""
    c, a = config, config.attention
    K = c.d_model // c.num_heads
    score_kind = getattr(a.scores(), role)
    inside = (
        c.position in ("relative", "rotary", "alibi") and role != "cross"
    )  # source and target have no common places
    local = a.cross != "global" if role == "cross" else a.window > 0
    hard = a.hard and role == "cross"
    if score_kind == "scaled_dot" and not (inside or local or hard):
        return MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout)
    score: nn.Module
    if score_kind == "general":
        score = General(c.num_heads, K)
    elif score_kind == "additive":
        score = Additive(c.num_heads, K)
    elif score_kind == "cosine":
        score = Cosine(c.num_heads)
    else:
        score = {"scaled_dot": ScaledDot, "dot": Dot, "euclidean": Euclidean}[score_kind]()
    relation: Rotary | Alibi | Relative | None = None
    if inside:
        relation = (
            Rotary(K)
            if c.position == "rotary"
            else Alibi(c.num_heads)
            if c.position == "alibi"
            else Relative(K, c.relative_distance)
        )
    window = 0 if not local else a.cross_window if role == "cross" else a.window
    centre = PredictedCentre(c.d_model) if role == "cross" and a.cross == "local_p" else None
    return VariantAttention(c.d_model, c.num_heads, c.attention_dropout, score, relation, window, centre, hard)
