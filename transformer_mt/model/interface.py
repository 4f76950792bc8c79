"""The interface of all models: everything that training, search and plots use of a model."""

from typing import Any

from torch import Tensor, nn

from transformer_mt.model.attention import AttentionRecorder, MultiHeadAttention
from transformer_mt.model.masks import Packing

NEVER = -1e9
"""An output bias with which a token has zero probability and no gradient."""


class TranslationModel(nn.Module):
    """A model of the next target token. Letters: B sentences, S source length, T target length, D width, V
    vocabulary, N rows: hypotheses of all sentences.
    """

    output: nn.Linear
    """(D) -> (V). A token whose bias is NEVER is never written."""
    guided_layer: int | None = None
    """The index of the decoder layer whose first head was trained to align words; None: no head was."""

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        """(B, S) source, (B, S) True = real, (B, T) target so far -> (B, T, V) logits of the token after
        each.
        """
        return self.output(self.hidden(src, src_mask, tgt_in))

    def hidden(
        self,
        src: Tensor,
        src_mask: Tensor,
        tgt_in: Tensor,
        recorder: AttentionRecorder | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """`forward` without the output projection: (B, T, D). Training projects only the real positions.
        `packing` says where the sentences are if the rows of a batch hold several; not all models can read
        such rows (`config/root.py`).
        """
        raise NotImplementedError

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        """(B, S) -> (B, S, D) memory."""
        raise NotImplementedError

    def start(self, memory_BSD: Tensor, src_mask: Tensor) -> Any:
        """(B, S, D) memory, (B, S) True = real -> the state before the first token, one row a sentence."""
        raise NotImplementedError

    def step(
        self, tokens: Tensor, state: Any, recorder: AttentionRecorder | None = None
    ) -> tuple[Tensor, Any]:
        """(N,) newest token of each row -> (N, V) logits of the next token, and the state after this step."""
        raise NotImplementedError

    @property
    def blocks(self) -> list[nn.Module]:
        """The modules between embeddings and output. Each is called as a whole, and sharded training divides
        the model at them.
        """
        raise NotImplementedError

    @property
    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """The attention of each layer, for `cross`, `encoder` and `decoder`; a list is empty where there is
        none.
        """
        raise NotImplementedError

    @property
    def alignment_attention(self) -> MultiHeadAttention:
        """The attention to the source that is most like an alignment of words."""
        layers = self.attentions["cross"]
        return layers[alignment_layer(len(layers)) if self.guided_layer is None else self.guided_layer]

    def as_alignment(self, weights_BHTS: Tensor) -> Tensor:
        """Turn the weights of `alignment_attention` into an alignment -> BTS: those of its first head if that
        head was trained to align, else the mean over all heads.
        """
        return weights_BHTS.mean(dim=1) if self.guided_layer is None else weights_BHTS[:, 0]


def count_by_part(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each part of a model: `encoder`, `output` ... One that parts share, such as
    a tied embedding, is counted in the first.
    """
    counts: dict[str, int] = {}
    for name, weight in model.named_parameters():  # each once
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + weight.numel()
    return counts


def alignment_layer(num_decoder_layers: int) -> int:
    """The index of the decoder layer whose cross-attention aligns best: the last but one of more than three
    layers (measured with six: Garg et al. 2019, section 3), else the last (measured with two and three:
    docs/measurements/alignment.md).
    """
    return num_decoder_layers - (2 if num_decoder_layers > 3 else 1)
