"""The keys of the YAML's `model` section, and which of them go together."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Discriminator, Tag, field_validator

from transformer_mt.settings.section import (
    Changeable,
    Conflict,
    NonNegative,
    Positive,
    Probability,
    Searched,
    Section,
    names,
)

if TYPE_CHECKING:
    ScoreKind = str
    PositionKind = str
else:
    ScoreKind = names("attention_score", "custom")
    PositionKind = names("position")
ONLY_RECURRENT = ("concat", "location")
_SCORES_WITHOUT_HEADS = {"scaled_dot", "dot", "euclidean"}
_CROSS_WINDOW, _RELATIVE_DISTANCE = 10, 16


class ScoresConfig(Section):
    """A score for each attention; concat and location need kind: recurrent."""

    encoder: ScoreKind = "scaled_dot"
    """The score of the encoder's self-attention."""
    decoder: ScoreKind = "scaled_dot"
    """The score of the decoder's self-attention."""
    cross: ScoreKind = "scaled_dot"
    """The score of the cross-attention."""


Scores = Annotated[
    Annotated[ScoreKind, Tag("a score")] | Annotated[ScoresConfig, Tag("ScoresConfig")],
    Discriminator(lambda value: "ScoresConfig" if isinstance(value, dict | ScoresConfig) else "a score"),
]
"""One score for all attentions, or a score for each."""


class AttentionConfig(Section):
    """Variants of attention."""

    score: Scores = "scaled_dot"
    """Attention score function, one for all attentions or one each: {encoder: ..., decoder: ..., cross: ...};
    concat and location need kind: recurrent; custom is a class of a Python program.
    """
    window: NonNegative = 0
    """Local self-attention: the maximum distance that a position attends to; 0 is no limit."""
    cross: Literal["global", "local_m", "local_p"] = "global"
    """Visible source positions: all, a window around the same position (local_m), or a window
    around a predicted position (local_p) (Luong et al. 2015).
    """
    cross_window: Positive = _CROSS_WINDOW
    """Size of the windows of local_m and local_p on each side. With local_m, target positions farther
    than this beyond the source's end attend to nothing.
    """
    hard: bool = False
    """Attend to one source token: sampled in training (straight-through Gumbel), the best in translation."""

    @field_validator("score", mode="after")
    @classmethod
    def _one_for_all(cls, score: ScoreKind | ScoresConfig) -> ScoreKind | ScoresConfig:
        """Replace three equal scores by one, so that both spellings give the same config."""
        if isinstance(score, ScoresConfig) and score.encoder == score.decoder == score.cross:
            return score.encoder
        return score

    def scores(self) -> ScoresConfig:
        """The score of each attention."""
        if isinstance(self.score, ScoresConfig):
            return self.score
        return ScoresConfig(encoder=self.score, decoder=self.score, cross=self.score)


class RecurrentConfig(Section):
    """Keys that only apply to kind: recurrent, which in turn ignores d_ff, num_heads, norm, activation and
    ffn_dropout.
    """

    cell: Literal["lstm", "gru"] = "lstm"
    """Cell of encoder and decoder. The encoder is bidirectional, each direction d_model / 2 wide."""
    decoder: Literal["bahdanau", "luong"] = "luong"
    """bahdanau attends with the state before each step (Bahdanau et al. 2015); luong with the state after it,
    with input feeding (Luong et al. 2015).
    """


class ModelConfig(Section):
    """The network. The defaults are the paper's base model with pre-norm."""

    kind: Literal["transformer", "recurrent", "encoder", "decoder"] = "transformer"
    """The architecture: recurrent is an LSTM or GRU encoder-decoder with attention, encoder is BERT
    (objective masked_lm or classification) and decoder is GPT (objective causal_lm).
    """
    d_model: Annotated[Positive, Searched(64, 1024, step=64)] = 512
    """Width of embeddings and of every layer's output."""
    d_ff: Annotated[Positive, Searched(128, 4096, step=128)] = 2048
    """Inner width of the position-wise feed-forward network."""
    num_heads: Positive = 8
    """Attention heads, which split d_model."""
    num_kv_heads: Positive | None = None
    """Heads of keys and values, each shared by a group of num_heads: a smaller cache in translation; default:
    num_heads.
    """
    qk_norm: bool = False
    """RMSNorm on the queries and keys of each head."""
    num_encoder_layers: Annotated[Positive, Searched(1, 12)] = 6
    """Depth of the encoder."""
    num_decoder_layers: Annotated[Positive, Searched(1, 12)] = 6
    """Depth of the decoder."""
    share_layers: bool = False
    """One layer's weights for all layers of the encoder, and one's for those of the decoder (Universal
    Transformer).
    """
    dropout: Annotated[Changeable[Probability], Searched(0.0, 0.5)] = 0.1
    """Dropout on embeddings and on the output of each sublayer (the paper's P_drop)."""
    attention_dropout: Annotated[Changeable[Probability], Searched(0.0, 0.3)] = 0.0
    """Dropout on attention weights."""
    ffn_dropout: Annotated[Changeable[Probability], Searched(0.0, 0.5)] = 0.0
    """Dropout inside the feed-forward network, after the activation."""
    layer_drop: Changeable[Probability] = 0.0
    """Probability that a sentence leaves out a layer in training."""
    norm: Literal["pre", "post"] = "pre"
    """The norm before each sublayer (trains reliably) or after the residual sum (the paper)."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm (the paper), or RMSNorm, which has no mean and no bias."""
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    """The non-linearity of the feed-forward network; swiglu has a third matrix of the same size."""
    position: PositionKind = "sinusoidal"
    """Encoding of token positions; learned ones end at data.max_length; sinusoidal_fairseq is
    the form of M2M-100 and NLLB.
    """
    relative_distance: Positive = _RELATIVE_DISTANCE
    """For relative positions: larger distances are clipped to this one."""
    attention: AttentionConfig = AttentionConfig()
    """The formula of attention."""
    recurrent: RecurrentConfig = RecurrentConfig()
    """The recurrent network."""
    tie_embeddings: bool = True
    """Tie weights: both embeddings and the output projection with a shared vocabulary, else the target
    embedding and the output projection.
    """
    embedding_norm: bool = False
    """LayerNorm on the sums of embeddings and positions, as in BERT and BART."""
    output_bias: bool = False
    """A bias for each output token, as in Marian's models."""
    decoder_start: Literal["bos", "eos"] = "bos"
    """The token that starts decoding; M2M-100 and NLLB use eos."""

    @property
    def has_max_positions(self) -> bool:
        """True if the kind has weights for each of data.max_length positions, and no more."""
        if self.kind == "recurrent":
            return self.attention.scores().cross == "location"
        return self.position == "learned"

    def conflicts(self) -> Iterator[Conflict]:
        if self.attention.hard and self.attention.cross == "local_p":
            yield (
                "model.attention.hard must be false with cross: local_p, which weighs many keys, but is true"
            )
        window, distance = self.attention.cross_window, self.relative_distance
        if self.attention.cross == "global" and window != _CROSS_WINDOW:
            yield (
                "model.attention.cross_window must be left out without cross: local_m or local_p, but is "
                f"{window}"
            )
        if self.position != "relative" and distance != _RELATIVE_DISTANCE:
            yield f"model.relative_distance must be left out without position: relative, but is {distance}"
        yield from self._of_recurrent() if self.kind == "recurrent" else self._of_transformer()

    def _of_recurrent(self) -> Iterator[Conflict]:
        if self.decoder_start == "eos":
            yield "model.decoder_start must be bos with kind: recurrent, but is eos"
        for key in ("embedding_norm", "num_kv_heads", "qk_norm", "share_layers", "layer_drop", "norm_kind"):
            value, usual = getattr(self, key), type(self).model_fields[key].default
            if value != usual:
                said = str(usual).lower() if usual is not None else "left out"
                yield f"model.{key} must be {said} with kind: recurrent, but is {str(value).lower()}"
        if self.position not in ("sinusoidal", "none"):  # sinusoidal is the default
            yield (
                "model.position must be none with kind: recurrent, which reads in order, but is "
                f"{self.position}"
            )
        if self.attention.window:
            yield (
                "model.attention.window must be 0 with kind: recurrent, which has no self-attention, "
                f"but is {self.attention.window}"
            )
        scores = self.attention.score
        if isinstance(scores, ScoresConfig) and (scores.encoder, scores.decoder) != (
            "scaled_dot",
            "scaled_dot",
        ):
            yield (
                "model.attention.score must be one score, or cross alone, with kind: recurrent, which has "
                "no self-attention"
            )
        if self.d_model % 2:
            yield (
                "model.d_model must be even with kind: recurrent, whose encoder's directions share it, but "
                f"is {self.d_model}"
            )

    def _of_transformer(self) -> Iterator[Conflict]:
        if self.decoder_start == "eos" and self.kind != "transformer":
            yield f"model.decoder_start must be bos with kind: {self.kind}, but is eos"
        heads, head_width = self.num_heads, self.d_model // self.num_heads
        multiple = 2 * heads if self.position == "rotary" else math.lcm(2, heads)
        above = (self.d_model // multiple + 1) * multiple
        near = f"use d_model {above}" if above == multiple else f"use d_model {above - multiple} or {above}"
        if self.d_model % heads:
            yield f"model.num_heads must divide model.d_model ({self.d_model}), but is {heads}; {near}"
        elif self.position == "rotary" and head_width % 2:
            yield (
                "model.d_model / model.num_heads must be even for rotary positions, but is "
                f"{self.d_model} / {heads} = {head_width}; {near}"
            )
        if self.num_heads % (self.num_kv_heads or 1):
            yield (
                f"model.num_kv_heads must divide model.num_heads ({self.num_heads}), but is "
                f"{self.num_kv_heads}"
            )
        if self.position.startswith("sinusoidal") and self.d_model % 2:
            yield f"model.d_model must be even for sinusoidal positions, but is {self.d_model}"
        if self.position == "sinusoidal_fairseq" and self.d_model < 4:
            yield f"model.d_model must be at least 4 with fairseq's sinusoids, but is {self.d_model}"
        if self.recurrent != RecurrentConfig():
            yield "model.recurrent must be left out without kind: recurrent, but is given"
        scores = self.attention.scores()
        for score in {scores.encoder, scores.decoder, scores.cross} - _SCORES_WITHOUT_HEADS:
            if self.num_kv_heads not in (None, self.num_heads):
                yield (
                    f"model.num_kv_heads must be left out with attention.score: {score}, which has weights "
                    f"for each head, but is {self.num_kv_heads}"
                )
        inside = {"rotary": ("scaled_dot", "dot", "cosine", "euclidean"), "relative": ("scaled_dot", "dot")}
        for side in ("encoder", "decoder", "cross"):
            score = getattr(scores, side)
            if score in ONLY_RECURRENT:
                yield (
                    f"model.attention.score must not be {' or '.join(ONLY_RECURRENT)} with kind: "
                    f"transformer, but is {score} ({side}); it needs kind: recurrent"
                )
            if side != "cross" and self.position in inside and score not in inside[self.position]:
                yield (
                    f"model.attention.score must be {', '.join(inside[self.position])} with {self.position} "
                    f"positions, but is {score} ({side})"
                )
