"""BPE-dropout (Provilkov et al. 2020): words spelled with other pieces than the usual ones, anew in each epoch.

SentencePiece can sample, too, but draws differently in each process whatever its seed, and a resumed run must draw the same.
"""

from functools import lru_cache

import numpy as np
import sentencepiece

from transformer_mt.data.batching import Respell
from transformer_mt.data.tokenizer import Tokenizer

# Spellings drawn of each word, of which each of its occurrences takes one.
_SPELLINGS = 16


def respelling(tokenizer: Tokenizer, dropout: float, seed: int, max_length: int) -> Respell | None:
    """BPE-dropout of both sides of a pair, for training batches; a side that would be over-long stays as it is."""
    if dropout == 0.0:
        return None
    src_side = SubwordDropout(tokenizer.src, dropout, seed)
    tgt_side = src_side if tokenizer.shared else SubwordDropout(tokenizer.tgt, dropout, seed)

    def respell(src: np.ndarray, tgt: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        other_src, other_tgt = src_side.respell(src, rng), tgt_side.respell(tgt, rng)
        return other_src if len(other_src) < max_length else src, other_tgt if len(other_tgt) < max_length else tgt

    return respell


class SubwordDropout:
    """Respells sequences of piece ids of one vocabulary."""

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, dropout: float, seed: int) -> None:
        self._dropout, self._seed = dropout, seed
        size = processor.vocab_size()
        self._pieces = [processor.id_to_piece(i) for i in range(size)]
        # Bytes, unknown and control pieces stand for themselves and are never part of a merge.
        special = [processor.is_byte(i) or processor.is_control(i) or processor.is_unknown(i) for i in range(size)]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if not special[i]}
        self._scores = [processor.get_score(i) for i in range(size)]
        self._opens_word = np.array([special[i] or self._pieces[i].startswith("▁") for i in range(size)])
        self._is_special = special
        self._spellings = lru_cache(maxsize=2**16)(self._draw)

    def respell(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The same text in pieces drawn by `rng`; never empty where `ids` are not."""
        if not len(ids):
            return ids
        starts = np.flatnonzero(self._opens_word[ids])
        if not len(starts) or starts[0] != 0:
            starts = np.concatenate([[0], starts])
        ends = [*starts[1:].tolist(), len(ids)]
        choices = rng.integers(_SPELLINGS, size=len(starts)).tolist()
        words = (self._spellings(tuple(ids[start:end].tolist())) for start, end in zip(starts.tolist(), ends))
        return np.concatenate([word[choice] for word, choice in zip(words, choices)])

    def _draw(self, word: tuple[int, ...]) -> list[np.ndarray]:
        """The spellings of a word, a function of it and the seed alone."""
        if self._is_special[word[0]]:
            return [np.array(word, np.int32)] * _SPELLINGS
        rng = np.random.default_rng([self._seed, *word])
        text = "".join(self._pieces[i] for i in word)
        if any(character not in self._ids for character in text):  # a piece whose characters are no pieces
            return [np.array(word, np.int32)] * _SPELLINGS
        return [np.array(self.merge(text, rng), np.int32) for _ in range(_SPELLINGS)]

    def merge(self, text: str, rng: np.random.Generator | None) -> list[int]:
        """The pieces of one word: of all neighbours that make a piece the one of the best score is merged, again and again.
        Each possible merge is left out with probability `dropout` at each step (algorithm 1); with no `rng`, none is.
        """
        symbols = [self._ids[character] for character in text]
        while True:
            best, place = 0, -1
            keep = rng.random(len(symbols) - 1) >= self._dropout if rng is not None else None
            for i in range(len(symbols) - 1):
                merged = self._ids.get(self._pieces[symbols[i]] + self._pieces[symbols[i + 1]])
                if merged is None or (keep is not None and not keep[i]):
                    continue
                if place < 0 or self._scores[merged] > self._scores[best]:
                    best, place = merged, i
            if place < 0:
                return symbols
            symbols[place : place + 2] = [best]
