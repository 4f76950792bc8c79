"""The selection of a beam search for translations that must have given phrases: dynamic beam allocation
(Post and Vilar 2018, section 3), all sentences and hypotheses at once.

Letters: B sentences, W hypotheses of each, N = B x W rows, V vocabulary, L most tokens, C phrases of a
sentence, P tokens of the longest phrase, K candidates of a sentence.
"""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.search.beam import Continuations, top_k
from transformer_mt.text.languages import LETTER


def select_phrases(
    wanted: Sequence[Sequence[Sequence[int]]], beam: int, tokenizer: Tokenizer, device: torch.device
) -> "Allotted":
    """The selection `phrases`. `wanted` has, for each sentence, the token ids of the phrases that its
    translation must have.
    """
    return Allotted(wanted, beam, EOS, _continuing(tokenizer), device)


_CONTINUING: WeakKeyDictionary[Tokenizer, list[int]] = WeakKeyDictionary()
"""Weak: a server that unloads a model forgets its vocabulary."""


def _continuing(tokenizer: Tokenizer) -> list[int]:
    """Ids of the target tokens that continue a word."""
    if tokenizer not in _CONTINUING:
        never = {PAD, UNK, BOS, EOS, *tokenizer.never_written}
        pieces = enumerate(tokenizer.all_pieces_tgt)
        _CONTINUING[tokenizer] = [i for i, piece in pieces if LETTER.match(piece) and i not in never]
    return _CONTINUING[tokenizer]


class Allotted:
    """Shares out the beam, so that hypotheses with phrases are kept even if they are unlikely.

    Hypotheses with the same number of phrase tokens form a bank. The best hypothesis of each bank is kept
    first, then the second of each bank, and so on until the beam is full. If there are more banks than
    places, the bank with the most phrase tokens still keeps one hypothesis. A hypothesis ends only when it
    has all phrases of its sentence. A phrase is not followed by a token of `continuing`, which would turn its
    last word into another word.
    """

    needs_history = waits = True

    def __init__(
        self,
        phrases: Sequence[Sequence[Sequence[int]]],
        beam: int,
        eos: int,
        continuing: Sequence[int] = (),
        device: torch.device | None = None,
    ) -> None:
        self._phrases, self._beam, self._eos = _Phrases(phrases, device), beam, eos
        self._inside_words = torch.tensor(continuing, dtype=torch.int64, device=device)

    def restrict(self, history: Tensor, log_probs: Tensor, raw: Tensor) -> None:
        begun, is_met = self._phrases.state(history)
        forced = self._phrases.next_pieces(begun, is_met).flatten(0, 1)  # (N, C), -1 where there is none
        # Kept, and restored below: a longer phrase may continue the word, and rules must not forbid phrases.
        column = forced.clamp(min=0)
        of_column = raw.gather(1, column)
        after_phrase = self._phrases.is_at_end(begun).flatten()
        log_probs[:, self._inside_words] += torch.where(after_phrase, -torch.inf, 0.0)[:, None]
        log_probs.scatter_(1, column, torch.where(forced >= 0, of_column, log_probs.gather(1, column)))

    def choose(self, scores: Tensor, history: Tensor) -> Continuations:
        B, W, V = scores.shape
        begun, is_met = self._phrases.state(history)
        # 1. Hypotheses that have all phrases of their sentence may end.
        ends = scores[:, :, self._eos].masked_fill(~is_met.all(dim=2), -torch.inf)
        scores[:, :, self._eos] = -torch.inf
        rows = torch.arange(W, device=scores.device).expand(B, W)
        pad = (0, self._beam - W)
        # 2. Candidates: the best continuations, and per hypothesis the next token of each missing phrase.
        best, index = top_k(scores.view(B, W * V), self._beam)
        forced = self._phrases.next_pieces(begun, is_met)
        at = (forced.clamp(min=0) + V * rows[:, :, None]).flatten(1)
        of_forced = scores.view(B, W * V).gather(1, at).masked_fill(forced.flatten(1) < 0, -torch.inf)
        is_twice = (at[:, :, None] == index[:, None]).any(dim=2) | _is_repeated(at)
        of_forced = of_forced.masked_fill(is_twice, -torch.inf)
        best, index = torch.cat([best, of_forced], dim=1), torch.cat([index, at], dim=1)  # (B, K)
        parent, token = index // V, index % V
        # 3. Divide the beam among banks: hypotheses with equal numbers of phrase tokens.
        longer = torch.cat([_of_rows(history, parent), token[:, :, None]], dim=2)  # (B, K, t + 1)
        chosen = _shared_out(best, self._phrases.progress(*self._phrases.state(longer)), self._beam)
        return Continuations(
            F.pad(ends, pad, value=-torch.inf), F.pad(rows, pad),
            best.gather(1, chosen), parent.gather(1, chosen), token.gather(1, chosen),
        )  # fmt: skip

    def keep(self, rows: Tensor) -> None:
        self._phrases.keep(rows)


class _Phrases:
    """The phrases of all sentences, padded: (B, C, P)."""

    def __init__(self, phrases: Sequence[Sequence[Sequence[int]]], device: torch.device | None) -> None:
        most = max(1, max(map(len, phrases)))
        self.P = max((len(phrase) for of_sentence in phrases for phrase in of_sentence), default=1)
        table = torch.full((len(phrases), most, self.P), -1, device=device)
        for b, of_sentence in enumerate(phrases):
            for c, phrase in enumerate(of_sentence):
                table[b, c, : len(phrase)] = torch.tensor(phrase)
        self._table = table
        self._sizes = (table >= 0).sum(dim=2)  # (B, C)

    def keep(self, rows: Tensor) -> None:
        self._table, self._sizes = self._table[rows], self._sizes[rows]

    def state(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Two tensors (B, W, C) for hypotheses (B, W, t): how many tokens of each phrase a hypothesis ends
        with, and whether it has the whole phrase. Padding phrases count as met.
        """
        B, W, t = tokens.shape
        table, sizes = self._table[:, None], self._sizes[:, None]  # (B, 1, C, P), (B, 1, C)
        begun = tokens.new_zeros(B, W, table.size(2))
        is_met = (sizes == 0).expand(-1, W, -1)
        for n in range(1, min(self.P, t) + 1):
            windows = tokens.unfold(2, n, 1)[:, :, None]  # (B, W, 1, t - n + 1, n)
            is_same = (windows == table[:, :, :, None, :n]).all(dim=4)  # (B, W, C, t - n + 1)
            begun = torch.where(is_same[..., -1], n, begun)
            is_met = is_met | ((sizes == n) & is_same.any(dim=3))
        return begun, is_met

    def is_at_end(self, begun: Tensor) -> Tensor:
        """(B, W): whether each hypothesis ends with a whole phrase."""
        return ((begun > 0) & (begun == self._sizes[:, None])).any(dim=2)

    def progress(self, begun: Tensor, is_met: Tensor) -> Tensor:
        """(B, W): the number of phrase tokens that each hypothesis has. Of an incomplete phrase, only the
        tokens that the hypothesis ends with count.
        """
        return torch.where(is_met, self._sizes[:, None], begun).sum(dim=2)

    def next_pieces(self, begun: Tensor, is_met: Tensor) -> Tensor:
        """(B, W, C): the next token of each phrase that is not met yet; -1 for phrases that are met."""
        table = self._table[:, None].expand(-1, begun.size(1), -1, -1)
        after = table.gather(3, begun.clamp(max=self.P - 1)[:, :, :, None])[:, :, :, 0]
        return after.masked_fill(is_met, -1)


def _shared_out(scores: Tensor, banks: Tensor, beam: int) -> Tensor:
    """Select `beam` of the K candidates: (B, beam). First the best of the bank with the most phrase tokens,
    then the best of each other bank, then the second of each, and so on; within a round by score.
    """
    is_better = (scores[:, None] > scores[:, :, None]) | (
        (scores[:, None] == scores[:, :, None])
        & torch.ones_like(scores[0, :, None] == scores[0]).tril(diagonal=-1)
    )
    rank = (is_better & (banks[:, None] == banks[:, :, None])).sum(dim=2)  # (B, K) within its bank
    banks = banks.masked_fill(scores == -torch.inf, -1)
    rank = torch.where((banks == banks.max(dim=1, keepdim=True).values) & (rank == 0), -1, rank)
    rank = rank.masked_fill(scores == -torch.inf, scores.size(1))
    by_score = scores.argsort(dim=1, descending=True, stable=True)
    order = rank.gather(1, by_score).argsort(dim=1, stable=True)
    chosen = by_score.gather(1, order)[:, :beam]
    return F.pad(chosen, (0, beam - chosen.size(1)))


def _is_repeated(values: Tensor) -> Tensor:
    """(B, M): whether the same value occurs earlier in the row."""
    is_same = values[:, :, None] == values[:, None]
    return is_same.tril(diagonal=-1).any(dim=2)


def _of_rows(tokens: Tensor, rows: Tensor) -> Tensor:
    """Gather the tokens of some hypotheses: (B, W, t), rows (B, K) -> (B, K, t)."""
    return tokens.gather(1, rows[:, :, None].expand(-1, -1, tokens.size(2)))
