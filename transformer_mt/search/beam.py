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
from transformer_mt.search.top_k import top_k


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


class Selection(Protocol):
    """Selection of the continuations that a beam search keeps."""

    needs_history: bool
    """Whether `restrict` and `choose` look at the tokens so far."""
    waits: bool
    """Whether a sentence is searched on after `beam` hypotheses have ended, while one of the others leads."""

    def restrict(self, history: Tensor, log_probs: Tensor, raw: Tensor) -> None:
        """Change the log-probabilities (N, V) of next tokens in place; `raw` are those before the rules,
        `history` is (B, W, t).
        """
        ...

    def choose(self, scores: Tensor, history: Tensor) -> "Continuations":
        """From the scores (B, W, V) of all continuations."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Forget all sentences but those of these rows."""
        ...


@dataclass(frozen=True)
class Continuations:
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
        self.waits = beam > 1 and not stop_early  # greedy search stops at the first EOS
        # Candidates: at most `beam` of 2 * beam are EOS, one per hypothesis, so at least `beam` are not. For
        # greedy search the best one is enough: if it is EOS, the sentence is done.
        self._looked_at = 1 if beam == 1 and on_gpu else 2 * beam

    def restrict(self, history: Tensor, log_probs: Tensor, raw: Tensor) -> None:
        """Nothing is impossible."""

    def choose(self, scores: Tensor, history: Tensor) -> Continuations:
        B, W, V = scores.shape
        best, index = top_k(scores.view(B, W * V), self._looked_at)
        parent, token = index // V, index % V
        is_end = token == self._eos
        ends = best.masked_fill(~is_end, -torch.inf)[:, : self._beam]
        kept, rank = best.masked_fill(is_end, -torch.inf).topk(self._beam)
        return Continuations(
            ends, parent[:, : self._beam], kept, parent.gather(1, rank), token.gather(1, rank)
        )

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
    on_gpu = settings.device is not None and settings.device.type == "cuda"
    selection = selection or BestFirst(settings.beam, ids.eos, on_gpu, settings.stop_early)
    beam = _Beam(max_lengths, ids, settings, selection, first)
    for length in range(1, max(max_lengths, default=0) + 1):
        logits, state = step(beam.tokens, state)
        rows = beam.extend(length, logits)
        if rows is None:
            break
        state = state.select(rows)  # type: ignore[assignment]
    return beam.hypotheses()


class _Beam:
    """The hypotheses of all unfinished sentences. The argument `length` is their number of tokens after the
    step.
    """

    def __init__(
        self,
        max_lengths: Sequence[int],
        ids: SpecialIds,
        settings: BeamSettings,
        selection: Selection,
        first: Tensor | None,
    ) -> None:
        device, count, longest = settings.device, len(max_lengths), max(max_lengths, default=0)
        self._ids, self._settings, self._selection = ids, settings, selection
        self._limits, self._shortest = torch.tensor(max_lengths, device=device), min(max_lengths, default=0)
        self._never = torch.tensor(ids.never, dtype=torch.int64, device=device)
        # (B,): which sentence each row of the batch is, and whether it is done
        self._sentences = torch.arange(count, device=device)
        self._done = torch.zeros_like(self._sentences, dtype=torch.bool)
        self._is_broken = torch.zeros((), dtype=torch.bool, device=device)
        # (N,): the last token of each hypothesis
        self.tokens = torch.full_like(self._sentences, ids.bos) if first is None else first
        # (B, W): ranked log-probability of each hypothesis so far
        self._totals = torch.zeros(count, 1, device=device)
        # (B, W): its log-probability by the model; the same tensor if no rule changes the ranking
        self._log_probs = self._totals
        self._back_pointers = BackPointers(longest, count, settings.beam, device)
        self._has_history = bool(settings.rules) or selection.needs_history
        # (B, W, L): tokens so far, if the rules or the selection read them
        self._history = self.tokens.new_empty(count, 1, longest if self._has_history else 0)

    def extend(self, length: int, logits: Tensor) -> Tensor | None:
        """From the logits (N, V) of the next tokens: the rows of the state that go on; None where all
        sentences are done.
        """
        at_limit = self._limits <= length
        log_probs, ranking = self._next_log_probs(length, logits)
        scores = self._scores(length, ranking, at_limit)
        choice = self._selection.choose(scores, self._history[:, :, : length - 1])
        rows = choice.parent + scores.size(1) * torch.arange(len(scores), device=scores.device)[:, None]
        self._keep(length, choice, log_probs)
        # A sentence is searched while one of its hypotheses may still become the best.
        enough = self._back_pointers.count[self._sentences] >= self._settings.beam
        if self._selection.waits:
            best = self._back_pointers.best[self._sentences]
            enough &= self._totals.amax(dim=1) / self._settings.penalty(length) <= best
        self._done = self._done | at_limit | enough
        if self._has_history:
            self._history = self._history.flatten(0, 1)[rows]
            self._history[:, :, length - 1] = choice.token
        return self._unfinished(length, rows, choice.token)

    def _next_log_probs(self, length: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        """(N, V) the model's log-probabilities of the next tokens, and those after rules, for the ranking."""
        log_probs = F.log_softmax(logits.float(), dim=-1)
        self._is_broken |= log_probs[:, 0].isnan().any()  # log-softmax of one NaN is NaN everywhere
        log_probs.index_fill_(1, self._never, -torch.inf)  # before the rules: some of them sort the tokens
        if not self._has_history:
            return log_probs, log_probs
        ranking, so_far = log_probs.clone(), self._history[:, :, : length - 1]
        for rule in self._settings.rules:
            rule(so_far.flatten(0, 1), ranking, self._sentences.repeat_interleave(so_far.size(1)))
        self._selection.restrict(so_far, ranking, log_probs)
        return log_probs, ranking

    def _scores(self, length: int, ranking: Tensor, at_limit: Tensor) -> Tensor:
        """The scores (B, W, V) of all continuations; at the length limit only EOS is possible."""
        scores, eos = ranking.view(*self._totals.shape, -1), self._ids.eos
        if length >= self._shortest:
            limited = scores.masked_fill(at_limit[:, None, None], -torch.inf)
            limited[:, :, eos] = scores[:, :, eos]
            scores = limited
        scores += self._totals[:, :, None]
        return scores

    def _keep(self, length: int, choice: Continuations, log_probs: Tensor) -> None:
        """Record the hypotheses that end, and continue with the chosen unfinished ones."""
        (B, W), V = self._totals.shape, log_probs.size(-1)
        of_end, self._totals = choice.end_scores, choice.scores
        if self._has_history:
            of_token, before = log_probs.view(B, W * V), self._log_probs
            end = choice.end_parent * V + self._ids.eos
            of_end = before.gather(1, choice.end_parent) + of_token.gather(1, end)
            token = choice.parent * V + choice.token
            self._log_probs = before.gather(1, choice.parent) + of_token.gather(1, token)
        else:
            self._log_probs = self._totals
        ended = (choice.end_scores > -torch.inf) & ~self._done[:, None]
        scores = choice.end_scores / self._settings.penalty(length)
        self._back_pointers.finish(self._sentences, ended, scores, of_end, length, choice.end_parent)
        self._back_pointers.extend(self._sentences, length, choice.parent, choice.token)

    def _unfinished(self, length: int, rows: Tensor, token: Tensor) -> Tensor | None:
        """Remove finished sentences from the batch. Returns the remaining rows (B, beam) of the state; None
        if all sentences are finished.
        """
        if length % self._settings.check_every == 0:
            stay = (~self._done).nonzero()[:, 0]
            if not len(stay):
                return None
            if len(stay) <= len(rows) * (1 - _COMPACT_SHARE):
                rows, token = rows[stay], token[stay]
                self._sentences, self._limits = self._sentences[stay], self._limits[stay]
                self._done, self._history = self._done[stay], self._history[stay]
                self._totals, self._log_probs = self._totals[stay], self._log_probs[stay]
                self._selection.keep(stay)
        self.tokens = token.flatten()
        return rows

    def hypotheses(self) -> list[list[Hypothesis]]:
        """The finished hypotheses of each sentence, best first."""
        ended = self._back_pointers.hypotheses(self._ids.eos, self._settings.most)
        if not all(ended) and self._is_broken:
            raise NotFiniteError
        return ended
