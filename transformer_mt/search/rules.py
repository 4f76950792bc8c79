"""Rules of a search: each changes the log-probabilities of the next token in place, from the tokens so far.

A rule is called with tokens (N, t) without BOS, log_probs (N, V) and sentences (N,), the sentence each row
belongs to. Beam search and sampling apply the same list. Letters: N rows, t tokens so far, V vocabulary.
"""

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformer_mt.data.vocabulary.tokenizer import Tokenizer


class Rule:
    """Base class of all rules. A rule for `decode.rules` that a companion or a program provides is built
    with the vocabulary (`tokenizer.all_pieces_tgt` lists the texts of tokens by id) and the device of the
    log-probabilities; also with `settings` if it has a section `Settings`.
    """

    def __init__(self, tokenizer: "Tokenizer", device: torch.device) -> None:
        self.tokenizer, self.device = tokenizer, device

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        raise NotImplementedError


class MinLength(Rule):
    """Forbids EOS before `least` tokens. EOS itself does not count, nor do the first `given[s]` tokens of
    sentence s, which were given.
    """

    def __init__(
        self, least: int, eos: int, given: Sequence[int] = (), device: torch.device | None = None
    ) -> None:
        self._eos, self._most = eos, least + max(given, default=0)
        self._least = torch.tensor([least + count for count in given] or least, device=device)

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        if tokens.size(1) < self._most:
            least = self._least[sentences] if self._least.dim() else self._least
            log_probs[:, self._eos].masked_fill_(tokens.size(1) < least, -torch.inf)


class NoRepeatNgram(Rule):
    """No n tokens in a row twice in a translation (Paulus et al. 2018, section 2.5, with n = 3)."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        if tokens.size(1) < self.n:
            return
        seen = tokens.unfold(1, self.n, 1)  # (N, t - n + 1, n)
        newest = tokens[:, tokens.size(1) - self.n + 1 :]  # (N, n - 1)
        _forbid(log_probs, seen[:, :, -1], (seen[:, :, :-1] == newest[:, None]).all(-1))


def _forbid(log_probs: Tensor, tokens: Tensor, where: Tensor) -> None:
    """Forbid the tokens (N, M) where `where` (N, M) is True."""
    # A mask instead of indices: `nonzero` would make the host wait for a GPU.
    log_probs.scatter_add_(1, tokens, log_probs.new_zeros(tokens.shape).masked_fill_(where, -torch.inf))


class BannedText(Rule):
    """Forbids texts, however they are divided into tokens: a token that would complete one is impossible.
    Byte tokens, which write unknown characters, are not read as text.

    `texts` are in the notation of tokens: "▁Hund" is banned at the beginning of a word, that is, after a
    space or any other character that is not a letter or digit; "." without the mark is banned everywhere.

    All data are tables on the device, because a GPU would wait while the host compares texts. A character is
    stored as its code point, negated if it is not a letter or digit; 0 stands for no character. Letters: R
    length of the longest banned text, P beginnings of banned texts, E pairs of a beginning and a token that
    completes it.
    """

    def __init__(
        self,
        texts: Sequence[str],
        pieces: Sequence[str],
        controls: Collection[int] = (),
        device: torch.device | None = None,
    ) -> None:
        """`controls` are the tokens without text, such as </s>."""
        self.reach = max(map(len, texts))
        written = [(token, piece) for token, piece in enumerate(pieces) if token not in controls]
        always = [token for token, piece in written if any(_holds(piece, text) for text in texts)]
        beginning_with: dict[str, list[tuple[int, str]]] = {}
        for token, piece in written:
            beginning_with.setdefault(piece[:1], []).append((token, piece))
        completing = {
            (text[:cut], token)
            for text in texts
            for cut in range(1, len(text))
            for token, piece in beginning_with.get(text[cut], ())
            if _completes(piece, text, cut)
        }
        begins = {begin: i for i, begin in enumerate(sorted({begin for begin, _ in completing}))}
        pairs = [(begins[begin], token) for begin, token in sorted(completing)]
        self._always = torch.tensor(always, dtype=torch.int64, device=device)
        self._pairs = torch.tensor(pairs, dtype=torch.int64, device=device).view(-1, 2)  # (E, 2)
        self._begins = self._characters(list(begins), device)  # (P, R)
        is_first = (self._begins != 0).cumsum(dim=1) == 1
        self._word_begins = is_first & (self._begins == _character("▁"))
        # One more row, for the position before the first token: a word begins there.
        self._pieces = self._characters([*pieces, "▁"], device)  # (V + 1, R)
        self._sizes = (self._pieces != 0).sum(dim=1)  # (V + 1,)

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        log_probs.index_fill_(1, self._always, -torch.inf)
        if not len(self._pairs):
            return
        written, begins = self._written(tokens)[:, None], self._begins
        is_same = (written == begins) | (begins == 0)  # (N, P, R)
        is_same |= self._word_begins & (written < 0)
        begin, completed = self._pairs.unbind(1)
        _forbid(log_probs, completed.expand(len(tokens), -1), is_same.all(dim=2)[:, begin])

    def _written(self, tokens: Tensor) -> Tensor:
        """The last R characters (N, R) that the tokens (N, t) write, in reading order."""
        start = tokens.new_full((len(tokens), 1), len(self._pieces) - 1)
        newest = torch.cat([start, tokens], dim=1)[:, -self.reach :]
        characters, sizes = self._pieces[newest], self._sizes[newest]  # (N, t, R), (N, t)
        after = sizes.sum(dim=1, keepdim=True) - sizes.cumsum(dim=1)  # characters of later tokens
        places = torch.arange(1, self.reach + 1, device=tokens.device) - after[:, :, None]
        places = places.clamp(min=0).masked_fill(characters == 0, 0)  # column 0 is dropped
        written = characters.new_zeros(len(tokens), 1 + self.reach)
        return written.scatter_(1, places.flatten(1), characters.flatten(1))[:, 1:]

    def _characters(self, texts: Sequence[str], device: torch.device | None) -> Tensor:
        """The last R characters of each text, in reading order: (texts, R)."""
        table = [
            [_character(text[i]) if -i <= len(text) else 0 for i in range(-self.reach, 0)] for text in texts
        ]
        return torch.tensor(table, dtype=torch.int32, device=device).view(-1, self.reach)


def _character(text: str) -> int:
    return ord(text) if text.isalnum() else -ord(text)


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def _marked(text: str) -> str:
    """Replace a first character that is no letter or digit by ▁, the mark of a word's beginning."""
    return f"▁{text[1:]}" if text and not text[0].isalnum() else text


def _holds(piece: str, text: str) -> bool:
    """True if the token alone writes the text: a word at the token's end, other text anywhere in it."""
    if not text.startswith("▁"):
        return text == piece if _BYTE.fullmatch(piece) else text in piece
    return len(piece) >= len(text) and _marked(piece[len(piece) - len(text) :]) == text


def _completes(piece: str, text: str, cut: int) -> bool:
    """True if the token writes the text after its first `cut` characters; a word must end with the token."""
    if text.startswith("▁") or _BYTE.fullmatch(piece):
        return piece == text[cut:]
    return piece.startswith(text[cut:])


class Prefix(Rule):
    """The translation of sentence s begins with the tokens `prefixes[s]`, even if `rules` forbid them. After
    the prefix, `rules` apply.
    """

    def __init__(
        self,
        prefixes: Sequence[Sequence[int]],
        rules: Sequence[Rule] = (),
        device: torch.device | None = None,
    ) -> None:
        longest = max(map(len, prefixes), default=0)
        given = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        self._given = torch.tensor(given, dtype=torch.int64, device=device).view(len(prefixes), longest)
        self._rules = rules

    def __call__(self, tokens: Tensor, log_probs: Tensor, sentences: Tensor) -> None:
        t, raw = tokens.size(1), log_probs
        if t < self._given.size(1):
            raw = log_probs.clone()
        for rule in self._rules:
            rule(tokens, log_probs, sentences)
        if t >= self._given.size(1):
            return
        given = self._given[sentences, t][:, None]  # (N, 1), -1 after the prefix
        column, is_given = given.clamp(min=0), given >= 0
        kept = torch.where(is_given, raw.gather(1, column), log_probs.gather(1, column))
        log_probs.masked_fill_(is_given, -torch.inf).scatter_(1, column, kept)
