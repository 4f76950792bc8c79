"""The keys of the YAML's `model` section, and which of them go together."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator

from transformer_mt.parts import load_part, names_of
from transformer_mt.settings.part import PartName, PartOf
from transformer_mt.settings.section import (
    Changeable,
    Conflict,
    NonNegative,
    Positive,
    Probability,
    Searched,
    Section,
)

ScoreKind = Annotated[PartName, PartOf("attention_score")]
_SCALED_DOT = PartName("scaled_dot")
_CROSS_WINDOW = 10


class ScoresConfig(Section):
    """A score for each attention; concat and location need kind: recurrent."""

    encoder: ScoreKind = _SCALED_DOT
    """The score of the encoder's self-attention."""
    decoder: ScoreKind = _SCALED_DOT
    """The score of the decoder's self-attention."""
    cross: ScoreKind = _SCALED_DOT
    """The score of the cross-attention."""


Scores = Annotated[
    Annotated[ScoreKind, Tag("a score")] | Annotated[ScoresConfig, Tag("ScoresConfig")],
    Discriminator(lambda value: "ScoresConfig" if _is_one_each(value) else "a score"),
]
"""One score for all attentions, or a score for each."""


def _is_one_each(value: Any) -> bool:
    """True if each attention has its own score; a mapping may also be a single score with its settings."""
    names = [name for names in names_of("attention_score") for name in names]
    return isinstance(value, ScoresConfig) or (isinstance(value, dict) and not value.keys() & set(names))


class AttentionConfig(Section):
    """Variants of attention."""

    score: Scores = _SCALED_DOT
    """Attention score function, one for all attentions or one each: {encoder: ..., decoder: ..., cross: ...};
    concat and location need kind: recurrent.
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
    def _one_for_all(cls, score: PartName | ScoresConfig) -> PartName | ScoresConfig:
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
    """Keys that only apply to kind: recurrent, which in turn ignores d_ff, num_heads, norm, feed_forward and
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
    d_model: Annotated[int, Field(ge=4), Searched(64, 1024, step=64)] = 512
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
    """All encoder layers share one layer's weights, and so do all decoder layers (Universal Transformer)."""
    dropout: Annotated[Changeable[Probability], Searched(0.0, 0.5)] = 0.1
    """Dropout on embeddings and on the output of each sublayer (the paper's P_drop)."""
    attention_dropout: Annotated[Changeable[Probability], Searched(0.0, 0.3)] = 0.0
    """Dropout on attention weights."""
    ffn_dropout: Annotated[Changeable[Probability], Searched(0.0, 0.5)] = 0.0
    """Dropout inside the feed-forward network, after the activation."""
    layer_drop: Changeable[Probability] = 0.0
    """Probability that a sentence leaves out a layer in training."""
    norm: Annotated[PartName, PartOf("residual")] = PartName("pre")
    """The norm before each sublayer (trains reliably) or after the residual sum (the paper)."""
    init: Literal["glorot", "depth_scaled"] = "glorot"
    """How the weights are initialised: glorot is Glorot uniform; depth_scaled then divides the linear weights
    of the l-th layer by sqrt(l), and deep models with norm: post learn faster (Zhang et al. 2019).
    """
    norm_kind: Annotated[PartName, PartOf("norm")] = PartName("layer")
    """LayerNorm (the paper), or RMSNorm, which has no mean and no bias."""
    feed_forward: Annotated[PartName, PartOf("feed_forward")] = PartName("relu")
    """The position-wise feed-forward network, by its non-linearity; swiglu has a third matrix of the same
    size.
    """
    position: Annotated[PartName, PartOf("position")] = PartName("sinusoidal")
    """Encoding of token positions; learned ones end at data.max_length; sinusoidal_marian is the form of
    Marian, sinusoidal_fairseq that of M2M-100 and NLLB; relative has the setting distance:
    {relative: {distance: 8}}.
    """
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
    autoregression: Literal["attention", "ssru"] = "attention"
    """How the decoder sees the target so far: by self-attention, or by ssru, a simpler recurrent unit with
    half the weights, whose steps take the same time at every position (Kim et al. 2019).
    """
    decoder_start: Literal["bos", "eos", "zeros"] = "bos"
    """What decoding starts with: a token (M2M-100 and NLLB use eos), or zeros, as in Marian."""

    @property
    def has_max_positions(self) -> bool:
        """True if the model has weights for data.max_length positions, so that it cannot use more."""
        if self.kind == "recurrent":
            return bool(load_part("attention_score", self.attention.scores().cross).bounded)
        return bool(load_part("position", self.position).bounded)

    def conflicts(self) -> Iterator[Conflict]:
        if self.attention.hard and self.attention.cross == "local_p":
            yield (
                "model.attention.hard must be false with cross: local_p, which weighs many keys, but is true"
            )
        window = self.attention.cross_window
        if self.attention.cross == "global" and window != _CROSS_WINDOW:
            yield (
                "model.attention.cross_window must be left out without cross: local_m or local_p, but is "
                f"{window}"
            )
        yield from self._of_recurrent() if self.kind == "recurrent" else self._of_transformer()

    def _of_recurrent(self) -> Iterator[Conflict]:
        for key in (
            "decoder_start",
            "autoregression",
            "embedding_norm",
            "init",
            "num_kv_heads",
            "qk_norm",
            "share_layers",
            "layer_drop",
            "norm_kind",
        ):
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
        for key in ("decoder_start", "autoregression") if self.kind != "transformer" else ():
            value, usual = getattr(self, key), type(self).model_fields[key].default
            if value != usual:
                yield f"model.{key} must be {usual} with kind: {self.kind}, but is {value}"
        if self.init != "glorot" and self.share_layers:
            yield f"model.init must be glorot with share_layers, whose layers are one, but is {self.init}"
        heads = self.num_heads
        if self.d_model % heads:
            near = _near(self.d_model, 2 * heads)
            yield f"model.num_heads must divide model.d_model ({self.d_model}), but is {heads}; {near}"
        if self.num_heads % (self.num_kv_heads or 1):
            yield (
                f"model.num_kv_heads must divide model.num_heads ({self.num_heads}), but is "
                f"{self.num_kv_heads}"
            )
        if self.d_model % 2:
            yield f"model.d_model must be even, for sinusoidal positions, but is {self.d_model}"
        if self.recurrent != RecurrentConfig():
            yield "model.recurrent must be left out without kind: recurrent, but is given"

    def part_conflicts(self) -> Iterator[Conflict]:
        usual = ModelConfig.model_fields["position"].default
        if self.kind == "recurrent" or (self.attention.score == _SCALED_DOT and self.position == usual):
            return  # the defaults are compatible: do not import torch just to read a usual config
        scores, position = self.attention.scores(), load_part("position", self.position)
        heads, head_width = self.num_heads, self.d_model // self.num_heads
        if getattr(position, "even_heads", False) and head_width % 2:
            yield (
                f"model.d_model / model.num_heads must be even for {self.position} positions, but is "
                f"{self.d_model} / {heads} = {head_width}; {_near(self.d_model, 2 * heads)}"
            )
        needs = getattr(position, "needs", "")
        for side in ("encoder", "decoder", "cross"):
            name = getattr(scores, side)
            score = load_part("attention_score", name)
            if not getattr(score, "transformer", True):
                yield (
                    f"model.attention.score must be one for kind: {self.kind}, but is {name} ({side}), which "
                    "needs kind: recurrent"
                )
            elif self.num_kv_heads not in (None, heads) and not getattr(score, "grouped_heads", False):
                yield (
                    f"model.num_kv_heads must be left out with attention.score: {name}, which has weights "
                    f"for each head, but is {self.num_kv_heads}"
                )
            if side != "cross" and needs and not getattr(score, needs, False):
                yield (
                    f"model.attention.score must be {', '.join(_scores_with(needs))} with {self.position} "
                    f"positions, but is {name} ({side})"
                )


def _scores_with(fact: str) -> list[str]:
    """The names of our scores of which this class attribute is true."""
    ours, _ = names_of("attention_score")
    return [name for name in ours if getattr(load_part("attention_score", name), fact)]


def _near(d_model: int, multiple: int) -> str:
    """A hint with the values of d_model nearest to this one that are multiples of `multiple`."""
    above = (d_model // multiple + 1) * multiple
    return f"use d_model {above}" if above == multiple else f"use d_model {above - multiple} or {above}"
