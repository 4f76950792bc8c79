"""Rules of a search: each changes the log-probabilities of the next token in place, from the tokens so far.

A rule is called with tokens (N, t) without BOS, log_probs (N, V) and sentences (N,), the sentence each row
belongs to. Beam search and sampling apply the same list. Letters: N rows, t tokens so far, V vocabulary.
"""

import re
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

Rule = Callable[[Tensor, Tensor, Tensor], None]


class MinLength:
    """No end before `least` tokens, EOS not counted."""

    def __init__(self, least: int, eos: int) -> None:
        self.least, self.eos = least, eos

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        if tokens.size(1) < self.least:
            log_probs[:, self.eos] = -torch.inf


class NoRepeatNgram:
    """No n tokens in a row twice in a translation (Paulus et al. 2018, section 2.5, with n = 3)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        if tokens.size(1) < self.n:
            return
        seen = tokens.unfold(1, self.n, 1)  # (N, t - n + 1, n)
        newest = tokens[:, tokens.size(1) - self.n + 1 :]  # (N, n - 1)
        row, position = (seen[:, :, :-1] == newest[:, None]).all(-1).nonzero(as_tuple=True)
        log_probs[row, seen[row, position, -1]] = -torch.inf


class RepetitionPenalty:
    """The log-probability of each token that was there before, times `penalty` (after Keskar et al. 2019,
    section 4.1).
    """

    def __init__(self, penalty: float) -> None:
        self.penalty = penalty

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        if tokens.size(1):
            log_probs.scatter_(1, tokens, log_probs.gather(1, tokens) * self.penalty)


class DiversityPenalty:
    """Subtracts `rate` x the rank of a continuation among those of its hypothesis, so that a beam's
    hypotheses come from different parents (Li, Monroe and Jurafsky 2016, "A Simple, Fast Diverse Decoding
    Algorithm").

    All ranks from `most` on get the same penalty: a search that keeps fewer never selects them.
    """

    def __init__(self, rate: float, most: int) -> None:
        self.rate, self.most = rate, most

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        best = log_probs.topk(min(self.most, log_probs.size(1)), dim=1).indices
        ranks = torch.arange(best.size(1), device=log_probs.device, dtype=log_probs.dtype)
        off = torch.full_like(log_probs, self.rate * self.most).scatter_(
            1, best, (self.rate * ranks).expand(best.shape)
        )
        log_probs.sub_(off)


class BannedText:
    """Texts that are never written, in whatever pieces: the token that would complete one is impossible. The
    bytes of an unknown character are not read as text.

    `texts` are in the notation of pieces: "▁Hund" is banned at the beginning of a word, which is after a
    space or any character that is no letter or digit; "." without the mark is banned at any position.
    """

    def __init__(self, texts: Sequence[str], pieces: Sequence[str], controls: Collection[int] = ()) -> None:
        """`controls` are tokens whose piece is a name, not text, such as </s>."""
        self.pieces = pieces
        self.reach = max(map(len, texts))
        tokens_of: dict[str, list[int]] = {}
        for token, piece in enumerate(pieces):
            if token in controls:
                continue
            tokens_of.setdefault(piece, []).append(token)
        # Key: the beginning of a banned text. Value: the tokens that complete it after that beginning. Key
        # "": the tokens that hold a banned text by themselves.
        self.completing: dict[str, list[int]] = {}
        for text in texts:
            inside = [
                token for token, piece in enumerate(pieces) if token not in controls and _holds(piece, text)
            ]
            self.completing.setdefault("", []).extend(inside)
            for cut in range(1, len(text)):
                self.completing.setdefault(text[:cut], []).extend(tokens_of.get(text[cut:], []))

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        for row, line in enumerate(tokens[:, -self.reach :].tolist()):
            written = "".join(self.pieces[token] for token in line)
            if tokens.size(1) <= self.reach and not written.startswith("▁"):
                written = "▁" + written  # the first word begins one even where its piece does not say so
            for cut in range(min(self.reach, len(written)) + 1):
                end = written[len(written) - cut :]
                for key in {end, _marked(end)}:
                    if banned := self.completing.get(key):
                        log_probs[row, banned] = -torch.inf


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def _marked(text: str) -> str:
    """The text, with the mark of a word's beginning where it starts with what is no letter or digit."""
    return f"▁{text[1:]}" if text and not text[0].isalnum() else text


def _holds(piece: str, text: str) -> bool:
    """Whether a piece alone completes the text: a word at its end, anything else wherever it stands in it."""
    if not text.startswith("▁"):
        return text == piece if _BYTE.fullmatch(piece) else text in piece
    return len(piece) >= len(text) and _marked(piece[len(piece) - len(text) :]) == text


class Prefix:
    """The translation of sentence s begins with the tokens `prefixes[s]`."""

    def __init__(self, prefixes: Sequence[Sequence[int]]) -> None:
        self.prefixes = prefixes
        self.longest = max(map(len, prefixes), default=0)

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        t = tokens.size(1)
        if t >= self.longest:
            return
        for row, sentence in enumerate(sentences.tolist()):
            if t < len(self.prefixes[sentence]):
                given = self.prefixes[sentence][t]
                kept = log_probs[row, given].clone()
                log_probs[row] = -torch.inf
                log_probs[row, given] = kept
