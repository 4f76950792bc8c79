"""The merges of a BPE vocabulary, of many words at once. Letters: N words, L letters of the longest and one
more.
"""

from collections.abc import Sequence
from itertools import count

import numpy as np

from transformer_mt.data.changes.row_random import A, B
from transformer_mt.data.vocabulary.tokenizer import PieceModel
from transformer_mt.text.hashes import splitmix64

_NONE = -1


class Merges:
    """Merges of two tokens into one, and their order."""

    def __init__(self, model: PieceModel) -> None:
        self._size = size = model.vocab_size()
        self._pieces = [model.id_to_piece(i) for i in range(size)]
        # Bytes, unknown and control pieces stand for themselves and are never part of a merge.
        self._is_special = [
            model.is_byte(i) or model.is_control(i) or model.is_unknown(i) for i in range(size)
        ]
        ids = self._ids = {piece: i for i, piece in enumerate(self._pieces) if not self._is_special[i]}
        halves = ((i, text[:k], text[k:]) for text, i in ids.items() for k in range(1, len(text)))
        pairs = sorted((ids[a] * size + ids[b], i) for i, a, b in halves if a in ids and b in ids)
        last = (np.iinfo(np.int64).max, _NONE)  # greater than any pair
        self._pairs, self._merged = np.array([*pairs, last], np.int64).T
        # The last entry, index -1, is the score of _NONE.
        self._scores = np.array([*map(model.get_score, range(size)), -np.inf], np.float32)

    def opens_word(self) -> np.ndarray:
        """(vocabulary,) of each piece: a word begins with it."""
        return np.array([s or piece.startswith("▁") for s, piece in zip(self._is_special, self._pieces)])

    def letters(self, word: Sequence[int]) -> np.ndarray:
        """The pieces of one letter each that a word consists of; none where it has a letter that is no
        piece.
        """
        text = "".join(self._pieces[i] for i in word)
        can_be_spelled = not self._is_special[word[0]] and all(letter in self._ids for letter in text)
        return np.array([self._ids[letter] for letter in text] if can_be_spelled else [], np.int64)

    def merge(self, words: Sequence[np.ndarray], dropout: float, keys_N: np.ndarray) -> list[np.ndarray]:
        """The pieces of words given by their letters: of all neighbours that make a piece the ones of the
        best score are merged, again and again. Each possible merge is left out with probability `dropout` at
        each step (Provilkov et al. 2020, algorithm 1), as 64 random bits of each word say.
        """
        sizes = np.array([len(word) for word in words])
        symbols = np.full((len(words), sizes.max() + 1), _NONE, np.int64)
        symbols[np.arange(symbols.shape[1]) < sizes[:, None]] = np.concatenate(words)
        pairs, rows = self._pieces_of(symbols[:, :-1], symbols[:, 1:]), np.arange(len(words))
        made: dict[int, np.ndarray] = {}
        for step in count():
            bits = splitmix64(keys_N + np.uint64(step * int(A) % 2**64))
            best, has_merge = self._best(pairs, dropout, bits)
            made |= zip(rows[~has_merge].tolist(), symbols[~has_merge])
            if not has_merge.any():
                break
            rows, keys_N = rows[has_merge], keys_N[has_merge]
            symbols, pairs = self._merge_at(best[has_merge], symbols[has_merge], pairs[has_merge])
        return [made[row][made[row] != _NONE] for row in range(len(words))]

    def _best(self, pairs: np.ndarray, dropout: float, bits_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(N,) the position of the best merge not left out, and (N,) True where there is one."""
        number = np.arange(pairs.shape[1], dtype=np.uint64)
        is_kept = splitmix64(bits_N[:, None] + number * B) / 2.0**64 >= dropout
        score = np.where(is_kept, self._scores[pairs], -np.inf)
        best = score.argmax(1)
        return best, np.take_along_axis(score, best[:, None], 1)[:, 0] > -np.inf

    def _merge_at(
        self, best: np.ndarray, symbols: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Apply one merge per word. Returns the tokens, and what each merges into with the next one."""
        at, width = np.arange(len(best)), symbols.shape[1]
        merged = pairs[at, best]
        # Tokens after the merged pair move one position to the left. No merge begins at the last letter, so
        # position best + 1 still exists.
        source = np.arange(width - 1) + (np.arange(width - 1) > best[:, None])
        symbols = np.take_along_axis(symbols, source, 1)
        symbols[at, best] = merged
        pairs = np.take_along_axis(pairs, source[:, :-1], 1)
        pairs[at, best] = self._pieces_of(merged, symbols[at, best + 1])
        inner = best > 0
        before = at[inner], best[inner] - 1
        pairs[before] = self._pieces_of(symbols[before], merged[inner])
        return symbols, pairs

    def _pieces_of(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """The token that each `left` and `right` merge into, or _NONE."""
        pair = left * self._size + right
        where = np.searchsorted(self._pairs, pair)
        is_pair = (self._pairs[where] == pair) & (left != _NONE) & (right != _NONE)
        return np.where(is_pair, self._merged[where], _NONE)
