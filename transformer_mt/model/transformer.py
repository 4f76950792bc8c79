"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017): sublayers, layers, stacks, model.

Letters: B sentences, S source length, T target length, D width, V vocabulary, W hypotheses of a sentence (its
beam), N = B x W rows.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.fast_attention import Dropout, dropout
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import Layout, Packing, attend_to
from transformer_mt.model.positions import LearnedPositions
from transformer_mt.model.state import DecoderState, LayerState
from transformer_mt.model.variants.ssru import SSRU


class LayerDrop(nn.Module):
    """In training, leaves out a layer with the probability p, independently for each sentence or packed row
    (Fan et al. 2020, section 3). The layer is still computed, so that all ranks and graphs do the same work.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, before_BTD: Tensor, after_BTD: Tensor) -> Tensor:
        if not self.training or not self.p:
            return after_BTD
        is_kept_B11 = dropout(torch.ones_like(before_BTD[:, :1, :1]), self.p) > 0
        return torch.where(is_kept_B11, after_BTD, before_BTD)


_of_this_thread = threading.local()


@contextmanager
def tokens_cut_off(share: float, kept_below: int) -> Iterator[None]:
    """Inside this context, each embedding that this thread looks up is set to zero with the probability
    `share`, except for ids below `kept_below`, such as the beginning and end of a sentence.
    """
    _of_this_thread.share, _of_this_thread.kept_below = share, kept_below
    try:
        yield
    finally:
        _of_this_thread.share = 0.0


def without_cut_off_tokens(x_BTD: Tensor, ids_BT: Tensor) -> Tensor:
    """The token embeddings, before positions are added, with zeros for tokens that are cut off."""
    share = getattr(_of_this_thread, "share", 0.0)
    if not share:
        return x_BTD
    is_kept_BT = dropout(torch.ones_like(ids_BT, dtype=x_BTD.dtype), share) > 0
    return x_BTD * (is_kept_BT | (ids_BT < _of_this_thread.kept_below))[..., None]


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at each position (paper, equation 2)."""

    activation: Callable[[Tensor], Tensor] = staticmethod(F.relu)

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(self.activation(self.inner(x))))


class GeluFeedForward(FeedForward):
    """The same with GELU (Hendrycks and Gimpel 2016), as in BERT and GPT."""

    activation = staticmethod(F.gelu)


class SiluFeedForward(FeedForward):
    """The same with SiLU, also called swish (Elfwing et al. 2018)."""

    activation = staticmethod(F.silu)


class GatedFeedForward(nn.Module):
    """FFN(x) = (SiLU(x W1) * x W3) W2: SwiGLU (Shazeer 2020, equation 6), here with biases as in the paper's
    FFN.
    """

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff)
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.dropout(F.silu(self.gate(x)) * self.inner(x)))


class Residual(nn.Module):
    """x + Sublayer(x), with a norm. The base of `model.norm`."""

    final_norm: ClassVar[bool] = False
    """Whether a stack of layers needs a norm after the last one."""

    def __init__(self, norm: Callable[[], nn.Module], dropout: float) -> None:
        """`norm` makes a new norm of the model's width."""
        super().__init__()
        self.norm = norm()
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        raise NotImplementedError


class PreNorm(Residual):
    """x + Sublayer(norm(x)): trains reliably even without a long warm-up (Xiong et al. 2020)."""

    final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return x + self.dropout(sublayer(self.norm(x)))


class PostNorm(Residual):
    """norm(x + Sublayer(x)), as in the paper (section 3.1)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.norm(x + self.dropout(sublayer(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each in a residual connection."""

    def __init__(
        self, attention: MultiHeadAttention, feed_forward: nn.Module, residual: Callable[[], Residual]
    ) -> None:
        super().__init__()
        self.self_attention, self.self_residual = attention, residual()
        self.feed_forward, self.ffn_residual = feed_forward, residual()

    def forward(self, x_BSD: Tensor, mask: Tensor, recorder: AttentionRecorder | None = None) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attention(x, *self.self_attention.keys_values(x), mask=mask, recorder=recorder)

        return self.ffn_residual(self.self_residual(x_BSD, attend), self.feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention or a recurrence, attention to the source, feed-forward, each in a residual
    connection. A decoder-only model has no attention to the source.
    """

    def __init__(
        self,
        autoregression: MultiHeadAttention | SSRU,
        cross_attention: MultiHeadAttention | None,
        feed_forward: nn.Module,
        residual: Callable[[], Residual],
    ) -> None:
        super().__init__()
        self.self_attention = None if isinstance(autoregression, SSRU) else autoregression
        self.recurrence = autoregression if isinstance(autoregression, SSRU) else None
        self.self_residual = residual()
        self.cross_attention = cross_attention
        if cross_attention is not None:
            self.cross_residual = residual()
        self.feed_forward, self.ffn_residual = feed_forward, residual()

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor,
        mask: Tensor,
        recorder: AttentionRecorder | None = None,
        self_mask: Tensor | None = None,
    ) -> Tensor:
        """Compute all positions at once, as in training. `self_mask` is the mask of packed rows. Without it
        the mask is causal, which also keeps real tokens from seeing the padding after them.
        """

        def see_target(x: Tensor) -> Tensor:
            if self.recurrence is not None:
                return self.recurrence(x, self_mask)
            assert self.self_attention is not None
            keys, values = self.self_attention.keys_values(x)
            is_causal = self_mask is None
            return self.self_attention(x, keys, values, mask=self_mask, causal=is_causal, recorder=recorder)

        def attend_to_source(x: Tensor) -> Tensor:
            assert self.cross_attention is not None
            return self.cross_attention(
                x, *self.cross_attention.keys_values(memory_BSD), mask=mask, recorder=recorder
            )

        x_BTD = self.self_residual(x_BTD, see_target)
        if self.cross_attention is not None:
            x_BTD = self.cross_residual(x_BTD, attend_to_source)
        return self.ffn_residual(x_BTD, self.feed_forward)

    def step(
        self, x_BWD: Tensor, layer: LayerState, state: DecoderState, recorder: AttentionRecorder | None = None
    ) -> Tensor:
        """Compute one position for each of a sentence's W hypotheses, and write their keys and values, or
        their cells, into the buffers of `layer`.
        """
        end = state.num_entries
        newest = slice(end - state.width, end)

        def see_target(x: Tensor) -> Tensor:
            if self.recurrence is not None:
                layer.self_keys[:, 0, newest], output = self.recurrence.step(x, layer.self_keys[:, 0], state)
                return output
            assert self.self_attention is not None
            layer.self_keys[:, :, newest], layer.self_values[:, :, newest] = self.self_attention.keys_values(
                x, state.self_positions
            )
            keys, values = layer.self_keys[:, :, :end], layer.self_values[:, :, :end]
            return self.self_attention(
                x, keys, values, mask=state.self_mask, positions=state.self_positions, recorder=recorder
            )

        def attend_to_source(x: Tensor) -> Tensor:
            assert self.cross_attention is not None
            return self.cross_attention(
                x,
                layer.src_keys,
                layer.src_values,
                mask=attend_to(state.src_mask),
                positions=state.src_positions,
                recorder=recorder,
            )

        x_BWD = self.self_residual(x_BWD, see_target)
        if self.cross_attention is not None:
            x_BWD = self.cross_residual(x_BWD, attend_to_source)
        return self.ffn_residual(x_BWD, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers. Pre-norm needs a final norm; post-norm layers already end with one."""

    layers: Sequence[EncoderLayer]

    def __init__(self, layers: list[EncoderLayer], final_norm: nn.Module, layer_drop: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm, self.drop_layer = final_norm, LayerDrop(layer_drop)

    def forward(self, x_BSD: Tensor, mask: Tensor, recorder: AttentionRecorder | None = None) -> Tensor:
        for layer in self.layers:
            x_BSD = self.drop_layer(x_BSD, layer(x_BSD, mask, recorder))
        return self.final_norm(x_BSD)


class Decoder(nn.Module):
    """A stack of decoder layers, followed by a final norm if they are pre-norm."""

    layers: Sequence[DecoderLayer]

    def __init__(self, layers: list[DecoderLayer], final_norm: nn.Module, layer_drop: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm, self.drop_layer = final_norm, LayerDrop(layer_drop)

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> DecoderState:
        """The state before the first token, with one row per sentence. Each layer's keys and values of the
        source are computed once, here. A decoder-only model has a source of length 0.
        """
        keys_values = []
        for layer in self.layers:
            attention = layer.cross_attention or layer.self_attention
            assert attention is not None
            keys_values.append(attention.keys_values(memory_BSD))
        cell = memory_BSD.size(-1) if any(layer.recurrence for layer in self.layers) else 0
        return DecoderState.start(keys_values, src_mask, cell)

    def forward(
        self,
        x_BTD: Tensor,
        memory_BSD: Tensor,
        mask: Tensor,
        recorder: AttentionRecorder | None = None,
        self_mask: Tensor | None = None,
    ) -> Tensor:
        for layer in self.layers:
            x_BTD = self.drop_layer(x_BTD, layer(x_BTD, memory_BSD, mask, recorder, self_mask))
        return self.final_norm(x_BTD)

    def step(
        self, x_BWD: Tensor, state: DecoderState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, DecoderState]:
        state = state.advanced()
        for layer, layer_state in zip(self.layers, state.layers):
            x_BWD = layer.step(x_BWD, layer_state, state, recorder)
        return self.final_norm(x_BWD), state


class Embedding(nn.Module):
    """Token vectors times sqrt(D) (paper, section 3.4), positions added, then dropout."""

    def __init__(
        self,
        tokens: nn.Embedding,
        positions: nn.Module,
        dropout: float,
        first: int | Literal["zeros"] | None = None,
        norm: nn.Module | None = None,
    ) -> None:
        """`first` replaces the id of every sequence's first token, or its vector by zeros; None leaves it
        unchanged. `norm` is applied after the positions are added.
        """
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.norm = norm or nn.Identity()
        self.dropout = Dropout(dropout)
        self.first = first

    def forward(self, ids_BT: Tensor, start: int | Tensor = 0) -> Tensor:
        """`start`: the position of the first token, or a (B, T) tensor with the position of each token."""
        is_first_BT = None if self.first is None else _begins(ids_BT, start)
        if isinstance(self.first, int) and is_first_BT is not None:
            ids_BT = torch.where(is_first_BT, self.first, ids_BT)
        x_BTD = without_cut_off_tokens(self.tokens(ids_BT), ids_BT) * math.sqrt(self.tokens.embedding_dim)
        if self.first == "zeros" and is_first_BT is not None:
            x_BTD = x_BTD.masked_fill(is_first_BT[..., None], 0.0)
        return self.dropout(self.norm(self.positions(x_BTD, start)))


def _begins(ids_BT: Tensor, start: int | Tensor) -> Tensor | None:
    """(B, T), True for the first tokens of sequences; None if there is none."""
    if isinstance(start, Tensor):
        return start == 0
    return (torch.arange(ids_BT.size(1), device=ids_BT.device) == 0).expand_as(ids_BT) if start == 0 else None


class Transformer(TranslationModel):
    """Encoder and decoder of equal width, which know of each other only through the memory
    (paper, figure 1).
    """

    def __init__(
        self,
        src_embedding: Embedding,
        tgt_embedding: Embedding,
        encoder: Encoder,
        decoder: Decoder,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding = src_embedding, tgt_embedding
        self.encoder, self.decoder = encoder, decoder
        self.output = output  # its weight may be an embedding's (paper, section 3.4)
        initialise(self)

    def hidden(
        self,
        src: Tensor,
        src_mask: Tensor,
        tgt_in: Tensor,
        recorder: AttentionRecorder | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        layout = Layout.of(src_mask, packing)
        memory_BSD = self.encoder(self.src_embedding(src, layout.src_positions), layout.encoder, recorder)
        x_BTD = self.tgt_embedding(tgt_in, layout.tgt_positions)
        return self.decoder(x_BTD, memory_BSD, layout.cross, recorder, layout.decoder)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return self.encoder(self.src_embedding(src), attend_to(src_mask))

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> DecoderState:
        return self.decoder.start(memory_BSD, src_mask)

    def step(
        self, tokens: Tensor, state: DecoderState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, DecoderState]:
        x_N1D = self.tgt_embedding(tokens[:, None], start=state.length)
        x_BWD, state = self.decoder.step(x_N1D.view(-1, state.width, x_N1D.size(-1)), state, recorder)
        return self.output(x_BWD.flatten(0, 1)), state

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.encoder.layers, *self.decoder.layers]

    @property
    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {
            "cross": [layer.cross_attention for layer in self.decoder.layers if layer.cross_attention],
            "encoder": [layer.self_attention for layer in self.encoder.layers],
            "decoder": [layer.self_attention for layer in self.decoder.layers if layer.self_attention],
        }


def initialise(model: nn.Module) -> None:
    """Initialise embeddings with N(0, 1/D), so that they have variance one after the multiplication by
    sqrt(D); learned positions with N(0, 1/2), which makes them as large as sinusoids; linear layers with
    Glorot uniform and zero biases. Recurrent cells keep torch's uniform(-1/sqrt(D), 1/sqrt(D)).
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for module in model.modules():  # second: a tied output projection is an embedding
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
    for module in model.modules():  # third: their vectors are an embedding, too
        if isinstance(module, LearnedPositions):
            nn.init.normal_(module.embedding.weight, std=0.5**0.5)


def scale_by_depth(model: nn.Module) -> None:
    """Divide the weights of the linear layers in the l-th layer of each stack by sqrt(l) (Zhang et al. 2019,
    DS-Init with alpha 1). With post-norm, each norm divides the sum of residual branch and sublayer by its
    standard deviation: the more a sublayer adds, the less gradient the branch passes on to the layers below.
    """
    for stack in model.modules():
        if isinstance(stack, Encoder | Decoder):
            for number, layer in enumerate(stack.layers, start=1):
                for module in layer.modules():
                    if isinstance(module, nn.Linear):
                        module.weight.data /= number**0.5
