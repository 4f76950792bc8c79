"""Several models that translate as one: the mean of their probabilities at each step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.search.beam import Selectable


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models, selected from together."""

    states: tuple[Selectable, ...]

    def select(self, rows: Tensor) -> "EnsembleState":
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble(nn.Module):
    """Models with one vocabulary, behind the methods of one. Its logits are log-probabilities: log of the
    mean of p.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        return _mean([model(src, src_mask, tgt_in) for model in self.models])

    def encode(self, src: Tensor, src_mask: Tensor) -> list[Tensor]:
        return [model.encode(src, src_mask) for model in self.models]  # type: ignore[operator]

    def start(self, memories: list[Tensor], src_mask: Tensor) -> EnsembleState:
        pairs = zip(self.models, memories)
        return EnsembleState(tuple(model.start(memory, src_mask) for model, memory in pairs))  # type: ignore[operator]

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        pairs = zip(self.models, state.states)
        logits, states = zip(*(model.step(tokens, model_state) for model, model_state in pairs))  # type: ignore[operator]
        return _mean(logits), EnsembleState(tuple(states))


def _mean(logits: Sequence[Tensor]) -> Tensor:
    log_probs = torch.stack([F.log_softmax(of_model.float(), dim=-1) for of_model in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))
