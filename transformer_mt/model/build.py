"""From a config to a model: the only place where a kind is chosen by its name."""

import torch.nn.functional as F
from torch import nn

from transformer_mt.config import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention
from transformer_mt.model.positions import LearnedPositions, SinusoidalPositions
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


def build_model(
    config: ModelConfig, src_vocab: int, tgt_vocab: int, shared_vocab: bool, max_length: int
) -> Transformer:
    """A freshly initialised model; `max_length` is only used by learned positions."""
    c = config

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(c.d_model, c.num_heads, c.attention_dropout)

    def feed_forward() -> nn.Module:
        if c.activation == "swiglu":
            return GatedFeedForward(c.d_model, c.d_ff, c.ffn_dropout)
        return FeedForward(c.d_model, c.d_ff, F.gelu if c.activation == "gelu" else F.relu, c.ffn_dropout)

    def residual() -> Residual:
        return Residual(c.d_model, c.norm == "pre", c.dropout)

    def positions() -> nn.Module:
        return LearnedPositions(c.d_model, max_length) if c.position == "learned" else SinusoidalPositions(c.d_model)

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
            [EncoderLayer(attention(), feed_forward(), residual) for _ in range(c.num_encoder_layers)], final_norm()
        ),
        Decoder(
            [DecoderLayer(attention(), attention(), feed_forward(), residual) for _ in range(c.num_decoder_layers)],
            final_norm(),
        ),
        output,
    )
