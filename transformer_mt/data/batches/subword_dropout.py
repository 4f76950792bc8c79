"""BPE-dropout (Provilkov et al. 2020): words segmented into other pieces than the usual ones, others in
each epoch.

SentencePiece can sample too, but its samples differ between processes even with the same seed, and a resumed
run must sample the same. Here the segmentation of a word is a function of the seed, the epoch, the row and
the position in the row. So the lengths of an epoch are known before its batches are built. Letters: R rows, W
words of all rows, concatenated.
"""

import numpy as np

from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.row_random import A, B, C
from transformer_mt.data.vocabulary.tokenizer import Processor
from transformer_mt.text.hashes import splitmix64

# Sampled segmentations per word; each occurrence of the word uses one of them.
_SEGMENTATIONS = 16
# At most this many words per side have sampled segmentations, in order of first occurrence. Words that first
# occur later are too rare to matter.
_MOST_WORDS = 2**18


class SubwordDropout:
    """Segments rows of piece ids of one vocabulary.

    `sample` selects one of several random segmentations: callers pass another number for each epoch and side.
    The segmentation of a row does not depend on other rows.
    """

    def __init__(self, model: Processor, dropout: float, seed: int, most_words: int = _MOST_WORDS) -> None:
        self._dropout, self._seed, self._most_words = dropout, seed, most_words
        size = model.vocab_size()
        self._pieces = [model.id_to_piece(i) for i in range(size)]
        # Bytes, unknown and control pieces stand for themselves and are never part of a merge.
        special = [model.is_byte(i) or model.is_control(i) or model.is_unknown(i) for i in range(size)]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if not special[i]}
        self._scores = [model.get_score(i) for i in range(size)]
        self._opens_word = np.array([special[i] or self._pieces[i].startswith("▁") for i in range(size)])
        self._is_special = special
        self._words: list[tuple[int, ...]] = []
        self._number_of: dict[int, int] = {}  # of words, by their hash
        # Segmentation k of word w is self._pool[begin:][:size] at [w, k] of these; not yet made while the
        # size is 0.
        self._begins, self._sizes = (
            np.zeros((1, _SEGMENTATIONS), np.int64),
            np.zeros((1, _SEGMENTATIONS), np.int64),
        )
        self._pool, self._used = np.zeros(2**16, np.int32), 0

    def learn(self, column: Column) -> None:
        """Number the words of the column."""
        self._words_at(column.values, *self._words_of(column))

    def end_learning(self) -> None:
        """From here on new words keep their usual pieces, so that the result does not depend on the order of
        calls.
        """
        self._most_words = len(self._words)

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
        return np.split(ids, np.cumsum(np.bincount(row_W, sizes_W, len(rows)).astype(np.int64))[:-1])

    def _choose(self, column: Column, rows: np.ndarray, sample: int) -> tuple[np.ndarray, ...]:
        """(W,) of each word: its row in the column, where its chosen segmentation begins, how many pieces it
        has, and whether it is the usual one, in the column's values, and not in the pool.
        """
        offsets, (begins_W, sizes_W) = column.offsets.astype(np.int64), self._words_of(column)
        row_W = np.searchsorted(offsets, begins_W, "right") - 1
        word_W = self._words_at(column.values, begins_W, sizes_W)
        key = np.uint64((self._seed * int(B) + sample * int(C)) % 2**64)
        position_W = (begins_W - offsets[row_W]).astype(np.uint64)
        hash_W = splitmix64(splitmix64(rows[row_W].astype(np.uint64) * A + key) + position_W * B)
        k_W = (hash_W % np.uint64(_SEGMENTATIONS)).astype(int)
        known = word_W >= 0
        wanted = np.unique(word_W[known] * _SEGMENTATIONS + k_W[known])
        for number in wanted[self._sizes.reshape(-1)[wanted] == 0].tolist():
            self._sample(*divmod(number, _SEGMENTATIONS))
        begins_W[known], sizes_W[known] = self._begins[word_W, k_W][known], self._sizes[word_W, k_W][known]
        return row_W, begins_W, sizes_W, ~known

    def _words_of(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """(W,) where each word begins in the column's values, and how many pieces it has."""
        offsets, values = column.offsets.astype(np.int64), column.values
        opens = np.zeros(len(values), bool)
        opens[offsets[0] : offsets[-1]] = self._opens_word[values[offsets[0] : offsets[-1]]]
        opens[offsets[:-1][np.diff(offsets) > 0]] = True
        begins_W = np.flatnonzero(opens)
        return begins_W, np.diff(begins_W, append=offsets[-1])

    def _words_at(self, values: np.ndarray, begins_W: np.ndarray, sizes_W: np.ndarray) -> np.ndarray:
        """(W,) the number of each word, -1 where it came when there were too many already."""
        if not len(begins_W):
            return begins_W
        ids = values[begins_W[0] : begins_W[-1] + sizes_W[-1]].astype(np.uint64)
        position = np.arange(len(ids)) - np.repeat(begins_W - begins_W[0], sizes_W)
        hash_W = np.add.reduceat(splitmix64(ids * A + position.astype(np.uint64) * C), begins_W - begins_W[0])
        different, first, which = np.unique(hash_W, return_index=True, return_inverse=True)
        in_order = np.argsort(first)
        for value, i in zip(different[in_order].tolist(), first[in_order].tolist()):
            if value not in self._number_of and len(self._words) < self._most_words:
                self._number_of[value] = len(self._words)
                self._words.append(tuple(values[begins_W[i] : begins_W[i] + sizes_W[i]].tolist()))
        if len(self._words) > len(self._sizes):
            more = np.zeros((2 * len(self._words) - len(self._sizes), _SEGMENTATIONS), np.int64)
            self._begins, self._sizes = (
                np.concatenate([self._begins, more]),
                np.concatenate([self._sizes, more]),
            )
        return np.array([self._number_of.get(value, -1) for value in different.tolist()])[which]

    def _sample(self, word: int, k: int) -> None:
        """Put segmentation k of a word, a function of it and the seed alone, into the pool."""
        ids = self._words[word]
        text = "".join(self._pieces[i] for i in ids)
        if not self._is_special[ids[0]] and all(character in self._ids for character in text):
            ids = tuple(self.merge(text, np.random.default_rng([self._seed, k, *ids])))
        if self._used + len(ids) > len(self._pool):
            self._pool = np.concatenate([self._pool, np.zeros(len(self._pool) + len(ids), np.int32)])
        self._pool[self._used : self._used + len(ids)] = ids
        self._begins[word, k], self._sizes[word, k] = self._used, len(ids)
        self._used += len(ids)

    def merge(self, text: str, rng: np.random.Generator) -> list[int]:
        """The pieces of one word: of all neighbours that make a piece the one of the best score is merged,
        again and again. Each possible merge is left out with probability `dropout` at each step (algorithm
        1).
        """
        symbols = [self._ids[character] for character in text]
        while True:
            best, position = 0, -1
            keep = (rng.random(len(symbols) - 1) >= self._dropout).tolist()
            for i in range(len(symbols) - 1):
                merged = self._ids.get(self._pieces[symbols[i]] + self._pieces[symbols[i + 1]])
                if merged is None or not keep[i]:
                    continue
                if position < 0 or self._scores[merged] > self._scores[best]:
                    best, position = merged, i
            if position < 0:
                return symbols
            symbols[position : position + 2] = [best]
