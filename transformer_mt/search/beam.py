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


class Selection(Protocol):
    """Which continuations a beam search keeps."""

    needs_history: bool
    """Whether `restrict` and `choose` look at the tokens so far."""
    waits: bool
    """Whether a sentence is searched on after `beam` hypotheses have ended, while one of the others leads."""

    def restrict(self, history: Tensor, log_probs: Tensor) -> None:
        """Change the log-probabilities (N, V) of next tokens in place; `history` is (B, W, t)."""
        ...

    def choose(self, scores: Tensor, history: Tensor) -> "Choice":
        """From the scores (B, W, V) of all continuations."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Forget all sentences but those of these rows."""
        ...


@dataclass(frozen=True)
class Choice:
    """The continuations of a step that are kept. -inf is the score of those that are none."""

    end_scores: Tensor
    """(B, beam) of hypotheses that end."""
    end_parent: Tensor
    """(B, beam) the hypothesis that each was."""
    scores: Tensor
    """(B, beam) of those that go on."""
    parent: Tensor
    """(B, beam)"""
    token: Tensor
    """(B, beam)"""


class BestFirst:
    """The `beam` best that do not end; of the `beam` best of all, those that end."""

    needs_history = False

    def __init__(self, beam: int, eos: int, on_gpu: bool = False, stop_early: bool = False) -> None:
        self._beam, self._eos = beam, eos
        self.waits = beam > 1 and not stop_early  # greedy search takes the first end
        # At most `beam` of these end, one per row, so at least `beam` go on. For greedy search the best is
        # enough: where it ends, the sentence is done.
        self._looked_at = 1 if beam == 1 and on_gpu else 2 * beam

    def restrict(self, history: Tensor, log_probs: Tensor) -> None:
        """Nothing is impossible."""

    def choose(self, scores: Tensor, history: Tensor) -> Choice:
        B, W, V = scores.shape
        best, index = top_k(scores.view(B, W * V), self._looked_at)
        parent, token = index // V, index % V
        is_end = token == self._eos
        ends = best.masked_fill(~is_end, -torch.inf)[:, : self._beam]
        kept, rank = best.masked_fill(is_end, -torch.inf).topk(self._beam)
        return Choice(ends, parent[:, : self._beam], kept, parent.gather(1, rank), token.gather(1, rank))

    def keep(self, rows: Tensor) -> None:
        """Nothing is remembered."""


@dataclass(frozen=True)
class BeamSettings:
    """The settings of a beam search."""

    beam: int
    """Hypotheses of a sentence."""
    penalty: LengthPenalty = LengthPenalty()
    rules: Sequence[Rule] = ()
    """They change the ranking, but not `log_prob`."""
    stop_early: bool = False
    """A sentence is done when it has `beam` finished hypotheses, also if an unfinished one is better."""
    most: int | None = None
    """Hypotheses to return of each sentence; None is all."""
    check_every: int = 1
    """Steps between checks whether all sentences are done, because on a GPU the check synchronises."""
    device: torch.device | None = None


@torch.inference_mode()
def beam_search(
    step: Step[State],
    state: State,
    max_lengths: Sequence[int],
    ids: SpecialIds,
    settings: BeamSettings,
    first: Tensor | None = None,
    selection: Selection | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence its finished hypotheses, best first: `beam` of them, or `most`; fewer only where
    there are no more.

    `state` has one row a sentence; `step(tokens (N,), state)` gives logits (N, V) of the next token and the
    new state. At `max_lengths[b]` tokens a hypothesis must end, and the sentence is done. It is done before
    when it has `beam` finished hypotheses and no unfinished one has a better score than the best of these;
    with `stop_early` or a beam of 1, when it has `beam` finished ones. `first` (B,) are the tokens before the
    first of each translation, if they are not BOS. `selection` is BestFirst unless another one is given.
    """
    device, beam, penalty, rules = settings.device, settings.beam, settings.penalty, settings.rules
    longest, shortest = max(max_lengths, default=0), min(max_lengths, default=0)
    on_gpu = device is not None and device.type == "cuda"
    selection = selection or BestFirst(beam, ids.eos, on_gpu, settings.stop_early)
    limits = torch.tensor(max_lengths, device=device)
    never = torch.tensor(ids.never, dtype=torch.int64, device=device)
    # (B,): which sentence each row of the batch is
    sentences = torch.arange(len(max_lengths), device=device)
    done = torch.zeros_like(sentences, dtype=torch.bool)
    is_broken = torch.zeros((), dtype=torch.bool, device=device)
    tokens = torch.full_like(sentences, ids.bos) if first is None else first
    # (B, W): ranked log-probability of each hypothesis so far
    totals = torch.zeros(len(max_lengths), 1, device=device)
    log_probs = totals  # (B, W): the model's, the same tensor where nothing changes the ranking
    back_pointers = BackPointers(longest, len(max_lengths), beam, device)
    has_history = bool(rules) or selection.needs_history
    # (B, W, L), for the rules and the selection to see
    history = tokens.new_empty(len(max_lengths), 1, longest if has_history else 0)
    for length in range(1, longest + 1):
        B, W = totals.shape
        # 1. The model's log-probability of each next token, and the one that ranks it.
        logits, state = step(tokens, state)
        model_log_probs = F.log_softmax(logits.float(), dim=-1)  # (N, V)
        V = model_log_probs.size(-1)
        is_broken |= model_log_probs[:, 0].isnan().any()  # log-softmax of one NaN is NaN everywhere
        model_log_probs.index_fill_(1, never, -torch.inf)  # first: some rules rank the tokens
        so_far, ranking = history[:, :, : length - 1], model_log_probs
        if has_history:
            ranking = model_log_probs.clone()
            for rule in rules:
                rule(so_far.flatten(0, 1), ranking, sentences.repeat_interleave(W))
            selection.restrict(so_far, ranking)
        scores = ranking.view(B, W, V)
        at_limit = limits <= length
        if length >= shortest:  # at its limit a hypothesis must end
            limited = scores.masked_fill(at_limit[:, None, None], -torch.inf)
            limited[:, :, ids.eos] = scores[:, :, ids.eos]
            scores = limited
        scores += totals[:, :, None]

        # 2. What is kept: those that end, and those that go on.
        choice = selection.choose(scores, so_far)
        parent, token, totals = choice.parent, choice.token, choice.scores
        ends, end_parent, of_end = choice.end_scores, choice.end_parent, choice.end_scores
        if has_history:
            of_token = model_log_probs.view(B, W * V)
            of_end = log_probs.gather(1, end_parent) + of_token.gather(1, end_parent * V + ids.eos)
            log_probs = log_probs.gather(1, parent) + of_token.gather(1, parent * V + token)
        else:
            log_probs = totals
        ended = (ends > -torch.inf) & ~done[:, None]
        back_pointers.finish(sentences, ended, ends / penalty(length), of_end, length, end_parent)
        back_pointers.extend(sentences, length, parent, token)

        # 3. A sentence goes on while one of its hypotheses may become the best.
        enough = back_pointers.count[sentences] >= beam
        if selection.waits:
            enough &= totals.amax(dim=1) / penalty(length) <= back_pointers.best[sentences]
        done = done | at_limit | enough

        # 4. Finished sentences leave.
        rows = parent + W * torch.arange(B, device=device)[:, None]  # (B, beam) rows of the state
        if has_history:
            history = history.flatten(0, 1)[rows]
            history[:, :, length - 1] = token
        if length % settings.check_every == 0:
            stay = (~done).nonzero()[:, 0]
            if not len(stay):
                break
            if len(stay) <= B * (1 - _COMPACT_SHARE):
                sentences, limits, done, rows = sentences[stay], limits[stay], done[stay], rows[stay]
                totals, log_probs, token, history = totals[stay], log_probs[stay], token[stay], history[stay]
                selection.keep(stay)
        state = state.select(rows)  # type: ignore[assignment]
        tokens = token.flatten()
    found = back_pointers.hypotheses(ids.eos, settings.most)
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
