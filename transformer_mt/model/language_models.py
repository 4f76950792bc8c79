"""Models of one half of the Transformer: BERT is its encoder (Devlin et al. 2019), GPT its decoder (Radford
et al. 2018). Layers, stacks and embeddings come from `transformer.py`.

Letters: B texts, S and T length, D width, V vocabulary, N rows.
"""

from collections.abc import Callable

from torch import Tensor, nn

from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.masks import Layout, Packing, attend_to
from transformer_mt.model.state import DecoderState
from transformer_mt.model.transformer import Decoder, Embedding, Encoder, initialise


class PredictionHead(nn.Module):
    """LayerNorm(act(x W + b)), between the last layer and the output projection, as in BERT."""

    def __init__(self, d_model: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner, self.norm = nn.Linear(d_model, d_model), nn.LayerNorm(d_model)
        self.activation = activation

    def forward(self, x_BSD: Tensor) -> Tensor:
        return self.norm(self.activation(self.inner(x_BSD)))


class EncoderModel(TranslationModel):
    """BERT: predicts tokens of the text it reads, each from all the others."""

    def __init__(
        self, src_embedding: Embedding, encoder: Encoder, head: PredictionHead, output: nn.Linear
    ) -> None:
        super().__init__()
        self.src_embedding, self.encoder, self.head = src_embedding, encoder, head
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
        """(B, S) -> (B, S, D), what each position's token is predicted from; `tgt_in` is not used."""
        return self.head(self.encoder(self.src_embedding(src), attend_to(src_mask), recorder))

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.encoder.layers]

    @property
    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        modules = [layer.self_attention for layer in self.encoder.layers]
        return {"cross": [], "encoder": modules, "decoder": []}


class DecoderModel(TranslationModel):
    """GPT: predicts the next token from those before it."""

    def __init__(self, tgt_embedding: Embedding, decoder: Decoder, output: nn.Linear) -> None:
        super().__init__()
        self.tgt_embedding, self.decoder = tgt_embedding, decoder
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
        """(B, T) text so far -> (B, T, D); the source is not used."""
        layout = Layout.of(src_mask, packing)
        x_BTD = self.tgt_embedding(tgt_in, layout.tgt_positions)
        return self.decoder(x_BTD, x_BTD[:, :0], layout.cross, recorder, layout.decoder)

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """(B, S) -> (B, 0, D): there is nothing to attend to."""
        return self.tgt_embedding(src[:, :1])[:, :0]

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> DecoderState:
        return self.decoder.start(memory_BSD, src_mask[:, :0])

    def step(
        self, tokens: Tensor, state: DecoderState, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, DecoderState]:
        x_N1D = self.tgt_embedding(tokens[:, None], start=state.length)
        x_BWD, state = self.decoder.step(x_N1D.view(-1, state.width, x_N1D.size(-1)), state, recorder)
        return self.output(x_BWD.flatten(0, 1)), state

    @property
    def blocks(self) -> list[nn.Module]:
        return [*self.decoder.layers]

    @property
    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        modules = [layer.self_attention for layer in self.decoder.layers if layer.self_attention]
        return {"cross": [], "encoder": [], "decoder": modules}
