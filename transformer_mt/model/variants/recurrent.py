"""The recurrent networks that attention grew from, behind the same methods as the Transformer.

Letters: B sentences, S source length, T target length, D width, L layers, V vocabulary, W hypotheses of a
sentence, N = B x W rows.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.fast_attention import Dropout
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import Packing, Positions, attend_to
from transformer_mt.model.transformer import Embedding, initialise
from transformer_mt.model.variants.attention_scores import AttentionScore
from transformer_mt.model.variants.variants import PredictedCentre, VariantAttention


class SourceAttention(VariantAttention):
    """Attention as it was before it had heads and projections: the decoder's state is the query, the
    encoder's states are both keys and values (Bahdanau et al. 2015, equations 5 and 6).
    """

    def __init__(
        self,
        d_model: int,
        dropout: float,
        score: AttentionScore,
        window: int,
        centre: PredictedCentre | None,
        hard: bool,
    ) -> None:
        super().__init__(d_model, 1, dropout, score, None, window, centre, hard)

    def projection(self, d_model: int, width: int) -> nn.Identity:  # type: ignore[override]
        return nn.Identity()


class RecurrentEncoder(nn.Module):
    """Reads from both ends: h_j = [forward h_j; backward h_j], half the width each (Bahdanau et al. 2015,
    section 3.2).
    """

    def __init__(self, cell: str, d_model: int, num_layers: int, dropout: float) -> None:
        super().__init__()
        kind = nn.LSTM if cell == "lstm" else nn.GRU
        between = dropout if num_layers > 1 else 0.0
        self.rnn = kind(
            d_model, d_model // 2, num_layers, batch_first=True, dropout=between, bidirectional=True
        )

    def forward(self, x_BSD: Tensor, src_mask: Tensor) -> Tensor:
        # Packed, so that the backward direction begins at the last real token and not in the padding.
        packed = pack_padded_sequence(
            x_BSD, src_mask.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False
        )
        return pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x_BSD.size(1))[0]


@dataclass(frozen=True)
class RecurrentState:
    """The state of B sentences with W hypotheses each. A value: steps and selections make new ones."""

    layers: tuple[tuple[Tensor, ...], ...]
    """For each layer (N, D) h, and of an LSTM (N, D) c."""
    fed: Tensor
    """(N, D), the output of the previous step, which is fed into the next one (Luong's input feeding)."""
    keys: Tensor
    """(B, 1, S, D)"""
    values: Tensor
    """(B, 1, S, D)"""
    src_mask: Tensor
    """(B, S), True = a real token."""
    width: int = 1
    """W: hypotheses of each sentence."""
    length: int = 0
    """Tokens so far, of each hypothesis."""

    def select(self, rows: Tensor) -> "RecurrentState":
        """As DecoderState.select: hypothesis w of sentence b continues row `rows[b, w]`."""
        row, kept = rows.flatten(), rows[:, 0] // self.width
        state = replace(
            self,
            layers=tuple(tuple(part[row] for part in layer) for layer in self.layers),
            fed=self.fed[row],
            width=rows.size(1),
        )
        if len(rows) == len(self.src_mask):
            return state
        return replace(state, keys=self.keys[kept], values=self.values[kept], src_mask=self.src_mask[kept])


class RecurrentDecoder(nn.Module):
    """Layers of cells, initialised from the encoder's final states, and an attention. Subclasses define when
    in a step it attends.
    """

    def __init__(
        self,
        cell: str,
        d_model: int,
        num_layers: int,
        dropout: float,
        attention: SourceAttention,
        input_width: int,
    ) -> None:
        super().__init__()
        kind = nn.LSTMCell if cell == "lstm" else nn.GRUCell
        self.cells = nn.ModuleList(kind(d_model if i else input_width, d_model) for i in range(num_layers))
        self.first_states = nn.Linear(d_model, num_layers * d_model)
        self.attention = attention
        self.dropout = Dropout(dropout)

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> RecurrentState:
        """h of each layer is tanh(W [forward end; backward end]) of the source (cf. Bahdanau et al. 2015,
        A.2.2); c is zero.
        """
        B, _, D = memory_BSD.shape
        last = memory_BSD[torch.arange(B, device=memory_BSD.device), src_mask.sum(dim=1) - 1]
        ends_BD = torch.cat([last[:, : D // 2], memory_BSD[:, 0, D // 2 :]], dim=1)
        first = torch.tanh(self.first_states(ends_BD)).chunk(len(self.cells), dim=1)
        is_lstm = isinstance(self.cells[0], nn.LSTMCell)
        layers = tuple((h, torch.zeros_like(h)) if is_lstm else (h,) for h in first)
        keys, values = self.attention.keys_values(memory_BSD)
        return RecurrentState(layers, torch.zeros_like(first[0]), keys, values, src_mask)

    def forward(
        self, x_BTD: Tensor, memory_BSD: Tensor, src_mask: Tensor, recorder: AttentionRecorder | None = None
    ) -> Tensor:
        """All positions, one after the other: (B, T, D)."""
        state, outputs = self.start(memory_BSD, src_mask), []
        for x_BD in x_BTD.unbind(dim=1):
            output_BD, state = self.step(x_BD, state, recorder)
            outputs.append(output_BD)
        return torch.stack(outputs, dim=1)

    def step(
        self, x_ND: Tensor, state: RecurrentState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, RecurrentState]:
        """(N, D) embedding of each row's newest token -> (N, D) vectors from which the next token is
        predicted, and the state after this step.
        """
        raise NotImplementedError

    def _advance(self, x: Tensor, state: RecurrentState) -> tuple[Tensor, tuple[tuple[Tensor, ...], ...]]:
        """Run one step of all layers on x (N, input width). Returns the top layer's h, and all states."""
        layers: list[tuple[Tensor, ...]] = []
        for cell, before in zip(self.cells, state.layers):
            after = cell(x, before) if len(before) == 2 else (cell(x, before[0]),)
            layers.append(after)
            x = self.dropout(after[0])
        return x, tuple(layers)

    def _attend(self, query_ND: Tensor, state: RecurrentState, recorder: AttentionRecorder | None) -> Tensor:
        """The context vectors (N, D), from attention to the source."""
        W, S = state.width, state.keys.size(2)
        device = query_ND.device
        positions = Positions(
            torch.full((W,), state.length, device=device),
            torch.arange(S, device=device),
            max(state.length + 1, S),
        )
        query_BWD = query_ND.view(-1, W, query_ND.size(1))
        mask = attend_to(state.src_mask)
        context_BWD = self.attention(
            query_BWD, state.keys, state.values, mask=mask, positions=positions, recorder=recorder
        )
        return context_BWD.flatten(0, 1)


class BahdanauDecoder(RecurrentDecoder):
    """Attends with the state before the step: c_t from s_(t-1), then s_t = f(s_(t-1), y_(t-1), c_t); its
    output is a maxout of s_t, y_(t-1) and c_t (Bahdanau et al. 2015, section 3.1; appendix A.2.2 writes it
    with s_(t-1)).
    """

    def __init__(
        self, cell: str, d_model: int, num_layers: int, dropout: float, attention: SourceAttention
    ) -> None:
        super().__init__(cell, d_model, num_layers, dropout, attention, 2 * d_model)
        self.readout = nn.Linear(3 * d_model, 2 * d_model)

    def step(
        self, x_ND: Tensor, state: RecurrentState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, RecurrentState]:
        context_ND = self._attend(state.layers[-1][0], state, recorder)
        h_ND, layers = self._advance(torch.cat([x_ND, context_ND], dim=1), state)
        pairs = self.readout(torch.cat([h_ND, x_ND, context_ND], dim=1)).unflatten(1, (-1, 2))
        return self.dropout(pairs.amax(dim=2)), replace(state, layers=layers, length=state.length + 1)


class LuongDecoder(RecurrentDecoder):
    """Attends with the state after the step: h~_t = tanh(W [c_t; h_t]), which is also fed into the next step
    (Luong et al. 2015, equation 5 and section 3.3).
    """

    def __init__(
        self, cell: str, d_model: int, num_layers: int, dropout: float, attention: SourceAttention
    ) -> None:
        super().__init__(cell, d_model, num_layers, dropout, attention, 2 * d_model)
        self.combine = nn.Linear(2 * d_model, d_model)

    def step(
        self, x_ND: Tensor, state: RecurrentState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, RecurrentState]:
        h_ND, layers = self._advance(torch.cat([x_ND, state.fed], dim=1), state)
        context_ND = self._attend(h_ND, state, recorder)
        fed_ND = torch.tanh(self.combine(torch.cat([context_ND, h_ND], dim=1)))
        return self.dropout(fed_ND), replace(state, layers=layers, fed=fed_ND, length=state.length + 1)


class Recurrent(TranslationModel):
    """Encoder and decoder of cells."""

    def __init__(
        self,
        src_embedding: Embedding,
        tgt_embedding: Embedding,
        encoder: RecurrentEncoder,
        decoder: RecurrentDecoder,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.src_embedding, self.tgt_embedding = src_embedding, tgt_embedding
        self.encoder, self.decoder = encoder, decoder
        self.output = output
        initialise(self)

    def hidden(
        self,
        src: Tensor,
        src_mask: Tensor,
        tgt_in: Tensor,
        recorder: AttentionRecorder | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        return self.decoder(self.tgt_embedding(tgt_in), self.encode(src, src_mask), src_mask, recorder)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return self.encoder(self.src_embedding(src), src_mask)

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> RecurrentState:
        return self.decoder.start(memory_BSD, src_mask)

    def step(
        self, tokens: Tensor, state: RecurrentState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, RecurrentState]:
        output_ND, state = self.decoder.step(self.tgt_embedding(tokens), state, recorder)
        return self.output(output_ND), state

    @property
    def blocks(self) -> list[nn.Module]:
        return [self.encoder, self.decoder]

    @property
    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {"cross": [self.decoder.attention], "encoder": [], "decoder": []}
