"""Beam search over any model: a pure function of a step and a state.

Letters: B sentences still searched, W hypotheses of each (the beam), N = B x W rows, V vocabulary, L most
tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.search.back_pointers import BackPointers
from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, NotFiniteError
from transformer_mt.search.rules import Rule


class Selectable(Protocol):
    """A decoder's memory: row `rows[b, w]` becomes hypothesis w of sentence b."""

    def select(self, rows: Tensor) -> "Selectable": ...


State = TypeVar("State", bound=Selectable)
Step = Callable[[Tensor, State], tuple[Tensor, State]]


@dataclass(frozen=True)
class SpecialIds:
    """Ids a search must know."""

    bos: int
    eos: int
    never: tuple[int, ...] = ()
    """Tokens that are never chosen: padding, and whatever has no text."""


# Finished sentences are removed when they are at least this share of the batch: removal copies the state of
# the remaining ones.
_COMPACT_SHARE = 1 / 32


def prompted(
    step: Step[State], state: State, prompts: Sequence[Sequence[int]], bos: int, device: torch.device
) -> tuple[State, Tensor | None]:
    """The state that has seen BOS and all but the last token of each sentence's prompt, and (B,) that token;
    None where there are no prompts.
    """
    if not prompts[0]:
        return state, None
    given = torch.tensor(prompts, device=device)  # (B, P)
    seen = torch.cat([torch.full_like(given[:, :1], bos), given], dim=1)
    for tokens in seen[:, :-1].unbind(1):
        _, state = step(tokens, state)
    return state, seen[:, -1]


@torch.inference_mode()
def beam_search(
    step: Step[State],
    state: State,
    max_lengths: Sequence[int],
    ids: SpecialIds,
    beam: int,
    penalty: LengthPenalty = LengthPenalty(),
    rules: Sequence[Rule] = (),
    bonus: Callable[[State], Tensor] | None = None,
    check_every: int = 1,
    device: torch.device | None = None,
    stop_early: bool = False,
    first: Tensor | None = None,
    most: int | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its finished hypotheses, best first: `beam` of them, or `most`; fewer only where
    there are no more.

    `state` has one row a sentence; `step(tokens (N,), state)` gives logits (N, V) of the next token and the
    new state. At `max_lengths[b]` tokens a hypothesis must end, and the sentence is done. It is done before
    when it has `beam` finished hypotheses and no unfinished one has a better score than the best of these;
    with `stop_early` or a beam of 1, when it has `beam` finished ones. `rules` change the ranking, but not
    `log_prob`. `bonus(state)` (B, W) is added to the scores of hypotheses that end. The search checks every
    `check_every` steps whether all sentences are done, because on a GPU the check synchronises. `first` (B,)
    are the tokens before the first of each translation, if they are not BOS.
    """
    longest, shortest = max(max_lengths, default=0), min(max_lengths, default=0)
    # The best continuation is enough for greedy search: where it ends, the sentence is done.
    looked_at = 1 if beam == 1 and device is not None and device.type == "cuda" else 2 * beam
    limits = torch.tensor(max_lengths, device=device)
    never = torch.tensor(ids.never, dtype=torch.int64, device=device)
    # (B,): which sentence each row of the batch is
    sentences = torch.arange(len(max_lengths), device=device)
    done = torch.zeros_like(sentences, dtype=torch.bool)
    is_broken = torch.zeros((), dtype=torch.bool, device=device)
    tokens = torch.full_like(sentences, ids.bos) if first is None else first
    # (B, W): ranked log-probability of each hypothesis so far
    totals = torch.zeros(len(max_lengths), 1, device=device)
    log_probs = totals  # (B, W): the model's, the same tensor where there are no rules
    back_pointers = BackPointers(longest, len(max_lengths), beam, device)
    # (B, W, L), for the rules to see
    history = tokens.new_empty(len(max_lengths), 1, longest) if rules else None
    for length in range(1, longest + 1):
        B, W = totals.shape
        # 1. The model's log-probability of each next token, and the one that the rules make of it.
        logits, state = step(tokens, state)
        model_log_probs = F.log_softmax(logits.float(), dim=-1)  # (N, V)
        V = model_log_probs.size(-1)
        is_broken |= model_log_probs[:, 0].isnan().any()  # log-softmax of one NaN is NaN everywhere
        model_log_probs.index_fill_(1, never, -torch.inf)  # first: some rules rank the tokens
        ranking_log_probs = model_log_probs
        if history is not None:
            ranking_log_probs = model_log_probs.clone()
            so_far = history[:, :, : length - 1].flatten(0, 1)
            for rule in rules:
                rule(so_far, ranking_log_probs, sentences.repeat_interleave(W))
        candidates = ranking_log_probs.view(B, W, V)
        at_limit = limits <= length
        if length >= shortest:
            can_continue = candidates.masked_fill(at_limit[:, None, None], -torch.inf)
            can_continue[:, :, ids.eos] = candidates[:, :, ids.eos]
            candidates = can_continue

        # 2. The 2 x beam best continuations of each sentence. At most `beam` of them end, one per row,
        #    so at least `beam` continue.
        candidates += totals[:, :, None]
        best, index = top_k(candidates.view(B, W * V), looked_at)  # (B, 2 beam)
        parent, token = index // V, index % V
        best_model_log_probs = best
        if history is not None:
            of_token = model_log_probs.view(B, W * V).gather(1, index)
            best_model_log_probs = log_probs.gather(1, parent) + of_token

        # 3. Those among the `beam` best that end are finished.
        ended = (token[:, :beam] == ids.eos) & (best[:, :beam] > -torch.inf) & ~done[:, None]
        score = best[:, :beam] / penalty(length)
        if bonus is not None:
            score = score + bonus(state).gather(1, parent[:, :beam])
        finished = best_model_log_probs[:, :beam]
        back_pointers.finish(sentences, ended, score, finished, length, parent[:, :beam])

        # 4. The `beam` best that do not end are continued, while one of them may become the best.
        totals, rank = best.masked_fill(token == ids.eos, -torch.inf).topk(beam)  # (B, beam)
        enough = back_pointers.count[sentences] >= beam
        if not stop_early and beam > 1:  # greedy search takes the first end
            leads = totals[:, 0] / penalty(length) > back_pointers.best[sentences]
            enough &= ~leads
        done = done | at_limit | enough
        parent, token = parent.gather(1, rank), token.gather(1, rank)
        log_probs = totals if history is None else best_model_log_probs.gather(1, rank)
        back_pointers.extend(sentences, length, parent, token)

        # 5. Finished sentences leave.
        rows = parent + W * torch.arange(B, device=device)[:, None]  # (B, beam) rows of the state
        if history is not None:
            history = history.flatten(0, 1)[rows]
            history[:, :, length - 1] = token
        if length % check_every == 0:
            stay = (~done).nonzero()[:, 0]
            if not len(stay):
                break
            if len(stay) <= B * (1 - _COMPACT_SHARE):
                sentences, limits, done, rows = sentences[stay], limits[stay], done[stay], rows[stay]
                totals, log_probs, token = totals[stay], log_probs[stay], token[stay]
                history = None if history is None else history[stay]
        state = state.select(rows)  # type: ignore[assignment]
        tokens = token.flatten()
    found = back_pointers.hypotheses(ids.eos, most)
    if not all(found) and is_broken:
        raise NotFiniteError
    return found


# Columns of a block, whose maximum is compared with those of the other blocks first.
_BLOCK = 64


def top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row, best first, and their indices; padded with -inf if a row has fewer.

    The k largest lie in the k blocks with the highest maxima. Finding these blocks first takes a third of the
    time of `topk`.
    """
    B, M = values.shape
    if k == 1:
        return values.max(dim=1, keepdim=True)
    if 2 * k * _BLOCK > M:
        best, index = values.topk(min(k, M), dim=1)
        missing = k - best.size(1)
        return F.pad(best, (0, missing), value=-torch.inf), F.pad(index, (0, missing))
    whole = M - M % _BLOCK
    head, tail = values[:, :whole].view(B, -1, _BLOCK), values[:, whole:]
    blocks = head.amax(dim=2).topk(k, dim=1).indices[:, :, None]  # (B, k, 1)
    inside = torch.arange(_BLOCK, device=values.device)
    few = torch.cat([head.gather(1, blocks.expand(-1, -1, _BLOCK)).flatten(1), tail], dim=1)
    columns = torch.cat(
        [(blocks * _BLOCK + inside).flatten(1), torch.arange(whole, M, device=values.device).expand(B, -1)], 1
    )
    best, index = few.topk(k, dim=1)
    return best, columns.gather(1, index)
