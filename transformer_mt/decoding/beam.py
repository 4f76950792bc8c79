"""Beam search over any model: a pure function of a step and a state.

Letters: B sentences still searched, W hypotheses of each (the beam), N = B x W rows, V vocabulary, t tokens so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor


class Selectable(Protocol):
    """A decoder's memory: row `rows[b, w]` becomes hypothesis w of sentence b."""

    def select(self, rows: Tensor) -> "Selectable": ...


State = TypeVar("State", bound=Selectable)
Step = Callable[[Tensor, State], tuple[Tensor, State]]


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: list[int]
    """Without BOS, with EOS."""
    log_prob: float
    """Natural logarithm of its probability."""
    score: float
    """log_prob / length^a: what hypotheses are ranked by."""


def length_penalty(length: int, alpha: float) -> float:
    """length^a, the length counted with EOS: a = 0 ranks by probability, a = 1 by the mean log-probability of a token."""
    return float(length) ** alpha


@torch.inference_mode()
def beam_search(
    step: Step[State],
    state: State,
    max_lengths: Sequence[int],
    *,
    bos_id: int,
    eos_id: int,
    beam: int,
    alpha: float = 1.0,
    banned: Sequence[int] = (),
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its finished hypotheses, best first: `beam` of them, fewer only where there are no more.

    `state` has one row a sentence; `step(tokens (N,), state)` gives logits (N, V) of the next token and the new state.
    At `max_lengths[b]` tokens a hypothesis can only end. `banned` tokens are never chosen. A sentence is done, and
    leaves the batch, when it has `beam` finished hypotheses or has reached its length.
    """
    results: list[list[Hypothesis]] = [[] for _ in max_lengths]
    searched = list(range(len(max_lengths)))  # B: which sentence each line of the batch is
    tokens = torch.full((len(searched),), bos_id, device=device)
    scores = torch.zeros(len(searched), 1, device=device)  # (B, W): log-probability of each hypothesis so far
    history = tokens.new_empty(len(searched), 1, 0)  # (B, W, t)
    length = 0
    while searched:
        length += 1
        B, W = scores.shape
        # 1. The model's opinion of each next token.
        logits, state = step(tokens, state)
        log_probs = F.log_softmax(logits.float(), dim=-1).view(B, W, -1)
        V = log_probs.size(-1)
        if banned:
            log_probs[:, :, list(banned)] = -torch.inf
        at_limit = [max_lengths[sentence] <= length for sentence in searched]
        if any(at_limit):
            ends = torch.tensor(at_limit, device=device)[:, None, None]
            not_eos = (torch.arange(V, device=device) != eos_id)[None, None]
            log_probs = log_probs.masked_fill(ends & not_eos, -torch.inf)

        # 2. The 2 x beam best continuations of each sentence. At most `beam` of them end, one a row, so that at least
        #    `beam` go on.
        candidates = (scores[:, :, None] + log_probs).view(B, W * V)
        best, index = _topk(candidates, 2 * beam)  # (B, 2 beam)
        parent, token = index // V, index % V

        # 3. Those among the `beam` best that end are finished.
        ended = (token[:, :beam] == eos_id) & (best[:, :beam] > -torch.inf)
        for line, rank in ended.nonzero().tolist():
            before = history[line, parent[line, rank]].tolist()
            log_prob = best[line, rank].item()
            finished = Hypothesis([*before, eos_id], log_prob, log_prob / length_penalty(length, alpha))
            results[searched[line]].append(finished)

        # 4. Finished sentences leave.
        keep = [i for i, sentence in enumerate(searched) if not at_limit[i] and len(results[sentence]) < beam]
        searched = [searched[i] for i in keep]
        if not searched:
            break
        lines = torch.tensor(keep, device=device)
        best, parent, token = best[lines], parent[lines], token[lines]

        # 5. The `beam` best that do not end go on.
        scores, rank = _topk(best.masked_fill(token == eos_id, -torch.inf), beam)  # (B, beam)
        parent, token = parent.gather(1, rank), token.gather(1, rank)
        rows = lines[:, None] * W + parent  # (B, beam) rows of the state
        state = state.select(rows)  # type: ignore[assignment]
        history = torch.cat([history.flatten(0, 1)[rows], token[:, :, None]], dim=2)
        tokens = token.flatten()
    for hypotheses in results:
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
        del hypotheses[beam:]
    return results


def _topk(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each line, best first, and where they stand; impossible ones fill up where there are fewer."""
    best, index = values.topk(min(k, values.size(1)), dim=1)
    missing = k - best.size(1)
    return F.pad(best, (0, missing), value=-torch.inf), F.pad(index, (0, missing))
