"""BPE-dropout (Provilkov et al. 2020): words segmented into other pieces than the usual ones, others in
each epoch.

SentencePiece can sample too, but its samples differ between processes even with the same seed, and a resumed
run must sample the same. Here the segmentation of a word is a function of the seed, the epoch, the row and
the position in the row. So the lengths of an epoch are known before its batches are built. Letters: R rows, W
words of all rows, concatenated.
"""

import threading
from collections.abc import Sequence
from itertools import compress, pairwise

import numpy as np

from transformer_mt.data.batches.batching import batch_bounds
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.changes.merges import Merges
from transformer_mt.data.changes.row_random import A, B, C
from transformer_mt.data.vocabulary.tokenizer import PieceModel
from transformer_mt.text.hashes import splitmix64

# Sampled segmentations per word; each occurrence of the word uses one of them.
_SEGMENTATIONS = 16
# At most this many words per side have sampled segmentations, in order of first occurrence. Words that first
# occur later are too rare to matter.
MOST_WORDS = 2**18
# Maximum letters of the words merged in one batch, padding counted.
_LETTERS = 2**19


class SubwordDropout:
    """Segments rows of piece ids of one vocabulary; several threads may use it.

    `sample` selects one of several random segmentations: callers pass another number for each epoch and side.
    The segmentation of a row does not depend on other rows.
    """

    def __init__(self, model: PieceModel, dropout: float, seed: int, most_words: int = MOST_WORDS) -> None:
        self._dropout, self._seed, self._most_words = dropout, seed, most_words
        self._merges, self._lock = Merges(model), threading.Lock()
        self._opens_word = self._merges.opens_word()
        # Letters and hash of each word that can be segmented differently. Words are numbered in the order of
        # their first occurrence.
        self._letters: list[np.ndarray] = []
        self._keys: list[int] = []
        # Sorted hashes of words, and their numbers; -1 for words that keep their usual tokens. The last hash
        # is a sentinel, greater than all others.
        self._index = np.array([2**64 - 1], np.uint64), np.array([-1])
        # Segmentation k of word w is _pool[begin : begin + size], with begin and size at [w, k]. A size of 0
        # means that it was not sampled yet.
        self._begins, self._sizes = np.zeros((2, 1, _SEGMENTATIONS), np.int64)
        self._pool, self._used = np.zeros(2**16, np.int32), 0

    def learn(self, column: Column) -> None:
        """Number the words of the column."""
        self._words_at(column.values, *self._words_of(column))

    def end_learning(self) -> None:
        """From here on new words keep their usual pieces, so that the result does not depend on the order of
        calls.
        """
        self._most_words = len(self._letters)

    def lengths(self, column: Column, rows: np.ndarray, sample: int) -> np.ndarray:
        """(R,) number of pieces of each row after dropout."""
        row_W, _, sizes_W, _ = self._choose(column, rows, sample)
        return np.bincount(row_W, sizes_W, len(rows)).astype(np.int64)

    def segment(self, column: Column, rows: np.ndarray, sample: int) -> list[np.ndarray]:
        """The same text in other pieces."""
        row_W, begins_W, sizes_W, is_usual_W = self._choose(column, rows, sample)
        position = np.arange(sizes_W.sum()) - np.repeat(np.cumsum(sizes_W) - sizes_W, sizes_W)
        where = np.repeat(begins_W, sizes_W) + position
        is_usual = np.repeat(is_usual_W, sizes_W)
        ids = np.empty(len(where), np.int32)
        ids[is_usual] = column.values[where[is_usual]]
        ids[~is_usual] = self._pool[where[~is_usual]]
        ends = np.cumsum(np.bincount(row_W, sizes_W, len(rows)).astype(np.int64)).tolist()
        return [ids[begin:end] for begin, end in pairwise([0, *ends])]

    def _choose(self, column: Column, rows: np.ndarray, sample: int) -> tuple[np.ndarray, ...]:
        """Choose a segmentation per word. Returns, (W,) each: its row, the begin of the segmentation, its
        length, and True if it is the usual one, which is in the column's values, not in the pool.
        """
        offsets, (begins_W, sizes_W) = column.offsets.astype(np.int64), self._words_of(column)
        row_W = np.searchsorted(offsets, begins_W, "right") - 1
        word_W = self._words_at(column.values, begins_W, sizes_W)
        key = np.uint64((self._seed * int(B) + sample * int(C)) % 2**64)
        position_W = (begins_W - offsets[row_W]).astype(np.uint64)
        hash_W = splitmix64(splitmix64(rows[row_W].astype(np.uint64) * A + key) + position_W * B)
        k_W = (hash_W % np.uint64(_SEGMENTATIONS)).astype(int)
        known = word_W >= 0
        missing = known & (self._sizes[word_W, k_W] == 0)
        if missing.any():
            self._sample(np.unique(word_W[missing] * _SEGMENTATIONS + k_W[missing]))
        begins_W[known], sizes_W[known] = self._begins[word_W, k_W][known], self._sizes[word_W, k_W][known]
        return row_W, begins_W, sizes_W, ~known

    def _words_of(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """(W,) the position of each word in the column's values, and (W,) its number of tokens."""
        offsets, values = column.offsets.astype(np.int64), column.values
        opens = np.zeros(len(values), bool)
        opens[offsets[0] : offsets[-1]] = self._opens_word[values[offsets[0] : offsets[-1]]]
        opens[offsets[:-1][np.diff(offsets) > 0]] = True
        begins_W = np.flatnonzero(opens)
        return begins_W, np.diff(begins_W, append=offsets[-1])

    def _words_at(self, values: np.ndarray, begins_W: np.ndarray, sizes_W: np.ndarray) -> np.ndarray:
        """(W,) the number of each word; -1 for words that keep their usual tokens: the vocabulary lacks
        a letter, or the table was already full.
        """
        if not len(begins_W):
            return begins_W
        ids = values[begins_W[0] : begins_W[-1] + sizes_W[-1]].astype(np.uint64)
        position = np.arange(len(ids)) - np.repeat(begins_W - begins_W[0], sizes_W)
        hash_W = np.add.reduceat(splitmix64(ids * A + position.astype(np.uint64) * C), begins_W - begins_W[0])
        number_W, is_new = self._find(hash_W)
        if len(self._letters) < self._most_words and is_new.any():
            hashes, first = np.unique(hash_W[is_new], return_index=True)
            in_order = np.argsort(first)
            where = np.flatnonzero(is_new)[first[in_order]]
            words = [values[begin : begin + size] for begin, size in zip(begins_W[where], sizes_W[where])]
            with self._lock:
                self._add(hashes[in_order], words)
            number_W, _ = self._find(hash_W)
        return number_W

    def _find(self, hash_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Look up words by hash. Returns (W,) their numbers or -1, and (W,) True for unknown hashes."""
        hashes, numbers = self._index
        where = np.searchsorted(hashes, hash_W)
        is_new = hashes[where] != hash_W
        return np.where(is_new, -1, numbers[where]), is_new

    def _add(self, hashes: np.ndarray, words: Sequence[np.ndarray]) -> None:
        """Assign numbers to new words, which are given in the order of their first occurrence."""
        _, is_new = self._find(hashes)  # another thread may have been here
        added = []
        for key, word in zip(hashes[is_new].tolist(), compress(words, is_new)):
            if len(self._letters) == self._most_words:
                break
            letters = self._merges.letters(word.tolist())
            added.append((key, len(self._letters) if len(letters) else -1))
            if len(letters):
                self._letters.append(letters)
                self._keys.append(key)
        if len(self._letters) > len(self._sizes):
            more = np.zeros((2 * len(self._letters) - len(self._sizes), _SEGMENTATIONS), np.int64)
            self._begins, self._sizes = (np.concatenate([old, more]) for old in (self._begins, self._sizes))
        index = np.array(added, np.dtype("u8,i8"))
        known = [np.concatenate([old, index[name]]) for old, name in zip(self._index, ("f0", "f1"))]
        order = np.argsort(known[0])
        self._index = known[0][order], known[1][order]

    def _sample(self, numbers: np.ndarray) -> None:
        """Sample segmentations into the pool. A number is word * _SEGMENTATIONS + k; the result is a function
        of the word, k and the seed.
        """
        with self._lock:
            numbers = numbers[self._sizes.reshape(-1)[numbers] == 0]  # another thread may have been here
            sizes = np.array([len(self._letters[n // _SEGMENTATIONS]) for n in numbers.tolist()])
            # Merge words of similar length together: less padding takes less memory.
            order = np.argsort(sizes, kind="stable")
            for part in np.split(numbers[order], batch_bounds(sizes[order] + 1, _LETTERS)):
                if len(part):
                    self._put(part)

    def _put(self, numbers: np.ndarray) -> None:
        words, k = np.divmod(numbers, _SEGMENTATIONS)
        keys = np.array([self._keys[word] for word in words.tolist()], np.uint64)
        keys = splitmix64(keys + k.astype(np.uint64) * A + np.uint64(self._seed * int(B) % 2**64))
        made = self._merges.merge([self._letters[word] for word in words.tolist()], self._dropout, keys)
        sizes = np.array([len(ids) for ids in made])
        total = int(sizes.sum())
        if self._used + total > len(self._pool):
            self._pool = np.concatenate([self._pool, np.zeros(len(self._pool) + total, np.int32)])
        self._pool[self._used : self._used + total] = np.concatenate(made)
        # Write the size last: other threads read an entry as soon as its size is not 0.
        self._begins[words, k] = self._used + np.cumsum(sizes) - sizes
        self._sizes[words, k] = sizes
        self._used += total
