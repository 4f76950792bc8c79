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

from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, NotFiniteError
from transformer_mt.search.rules import Rule

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


class BackPointers:
    """For every sentence of the search, the tokens and parents of its hypotheses, and the finished ones. All
    of it is on the device of the search.
    """

    def __init__(self, longest: int, sentences: int, beam: int, device: torch.device | None) -> None:
        self.parents = torch.zeros(longest, sentences, beam, dtype=torch.int32, device=device)
        self.tokens = torch.zeros(longest, sentences, beam, dtype=torch.int32, device=device)
        self.beam = beam
        self.count = torch.zeros(sentences, dtype=torch.int64, device=device)  # finished hypotheses
        # (score, log_prob, length, parent) of the `beam` best finished hypotheses, best first. In float32, as
        # some devices lack float64; it holds lengths and rows up to 2^24 exactly.
        self.numbers = torch.zeros(4, sentences, beam, device=device)
        self.numbers[0] = -torch.inf

    @property
    def best(self) -> Tensor:
        """(B,) the best score of those that have ended, -inf where none has."""
        return self.numbers[0, :, 0]

    def finish(
        self, sentences: Tensor, ended: Tensor, score: Tensor, log_prob: Tensor, length: int, parent: Tensor
    ) -> None:
        """Record the hypotheses (B, beam) that have `ended` if they are among the best of their sentence.
        They are `length` tokens long.
        """
        if ended.device.type == "cpu" and not ended.any():
            return
        score = score.masked_fill(~ended, -torch.inf)
        new = torch.stack([score, log_prob, torch.full_like(score, length), parent.to(score.dtype)])
        both = torch.cat([self.numbers[:, sentences], new], dim=2)
        rank = both[0].sort(dim=1, descending=True, stable=True).indices[:, : self.beam]
        self.numbers[:, sentences] = both.gather(2, rank.expand(4, -1, -1))
        self.count[sentences] += ended.sum(1)

    def extend(self, sentences: Tensor, length: int, parent: Tensor, token: Tensor) -> None:
        self.parents[length - 1, sentences] = parent.int()
        self.tokens[length - 1, sentences] = token.int()

    def hypotheses(self, eos: int, most: int | None = None) -> list[list[Hypothesis]]:
        """The finished hypotheses of each sentence, best first, at most `most` of them. All sentences are
        read from the device together.
        """
        numbers = self.numbers[:, :, :most]
        counts = self.count.clamp(max=numbers.size(2)).to(numbers.dtype)[:, None].expand_as(numbers[0])
        facts = torch.cat([numbers, counts[None]]).permute(1, 2, 0).cpu()
        longest = int(facts[:, :, 2].max()) if facts.numel() else 0
        lengths, row = numbers[2].long(), numbers[3].long()  # (B, W)
        # (B, W, L): follow all paths back at once, from the last token to the first
        paths = lengths.new_full((*lengths.shape, longest), eos, dtype=torch.int32)
        for t in range(longest - 2, -1, -1):
            inside = lengths > t + 1
            paths[:, :, t] = torch.where(inside, self.tokens[t].gather(1, row), eos)
            row = torch.where(inside, self.parents[t].gather(1, row).long(), row)
        tokens = paths.tolist()
        return [
            [
                Hypothesis(tokens[sentence][rank][: int(length)], log_prob, score)
                for rank, (score, log_prob, length, _, count) in enumerate(of_sentence)
                if rank < count
            ]
            for sentence, of_sentence in enumerate(facts.tolist())
        ]


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
    """Whether to go on after `beam` hypotheses have ended, while an unfinished one has a better score."""

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
    """The continuations that are kept in a step. Unused entries have the score -inf."""

    end_scores: Tensor
    """(B, beam) scores of the hypotheses that end."""
    end_parent: Tensor
    """(B, beam) the hypothesis that each of them was before this step."""
    scores: Tensor
    """(B, beam) scores of the hypotheses that go on."""
    parent: Tensor
    """(B, beam) the hypothesis that each of them was before this step."""
    token: Tensor
    """(B, beam) the token that each of them is continued with."""


class BestFirst:
    """Keeps the `beam` best that do not end, and those that end if they are among the `beam` best of all."""

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
    """Returns the finished hypotheses of each sentence, best first: `beam` of them, or `most`, or fewer if
    there are no more.

    `state` has one row per sentence; `step(tokens (N,), state)` returns the logits (N, V) of the next token
    and the new state. At `max_lengths[b]` tokens a hypothesis must end, and the sentence is done. It is done
    earlier if it has `beam` finished hypotheses and no unfinished one has a better score than the best of
    these; with `stop_early` or a beam of 1, as soon as it has `beam` finished ones. `first` (B,) are the
    tokens that translations start from, if not BOS. `selection` is BestFirst by default.
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
        """Extend the hypotheses, given the logits (N, V) of the next tokens. Returns the rows of the state
        that go on; None if all sentences are done.
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
