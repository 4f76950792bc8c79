"""GNMT's coverage penalty (Wu et al. 2016, equation 14): translations that attend to all of the source rank
higher.

Letters: B sentences, W hypotheses of each, N = B x W rows, S source length.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.model.interface import TranslationModel
from transformer_mt.model.recorder import AttentionRecorder
from transformer_mt.model.state import DecoderState
from transformer_mt.model.variants.recurrent import RecurrentState


@dataclass(frozen=True)
class CoveredState:
    """A decoder's state, and the attention each hypothesis has paid to each source token so far."""

    state: DecoderState | RecurrentState
    covered: Tensor
    """(N, S)"""

    def select(self, rows: Tensor) -> "CoveredState":
        return CoveredState(self.state.select(rows), self.covered[rows.flatten()])


class Coverage:
    """cp(X; Y) = beta * sum over source tokens i of log(min(sum over target tokens j of p_ij, 1)).

    p_ij is the attention that is most like an alignment: the mean of a layer's heads, or a head that was
    trained to align.
    """

    def __init__(self, model: TranslationModel, beta: float) -> None:
        self.model, self.beta = model, beta

    def start(self, state: DecoderState | RecurrentState) -> CoveredState:
        return CoveredState(state, torch.zeros(state.src_mask.shape, device=state.src_mask.device))

    def step(self, tokens: Tensor, before: CoveredState) -> tuple[Tensor, CoveredState]:
        attention = self.model.alignment_attention
        recorder = AttentionRecorder(attention)
        logits, state = self.model.step(tokens, before.state, recorder)
        # (B, H, W, S) -> (B, W, S) -> (N, S)
        paid = self.model.as_alignment(recorder.of(attention)[0].float()).flatten(0, 1)
        return logits, CoveredState(state, before.covered + paid)

    def penalty(self, now: CoveredState) -> Tensor:
        """(B, W): what is added to the score of a hypothesis that ends now."""
        each = (
            now.covered.clamp(min=1e-9, max=1.0).log().view(len(now.state.src_mask), -1, now.covered.size(1))
        )
        return self.beta * each.masked_fill(~now.state.src_mask[:, None], 0.0).sum(dim=2)
