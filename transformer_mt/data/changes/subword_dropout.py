"""BPE-dropout (Provilkov et al. 2020): words are segmented into tokens other than the usual ones, differently
in each epoch.

The segmentation of a word is a function of the seed, the epoch, the row and the position in the row, so that
a resumed run samples the same, and the lengths of an epoch are known before its batches are built.
SentencePiece's own sampling, with a seed for each row, takes four times as long
(docs/measurements/performance.md). Letters: R rows, W words of all rows, concatenated.
"""

import threading
from collections.abc import Sequence
from itertools import compress, count, pairwise

import numpy as np

from transformer_mt.data.batches.batch import Lengths, Rows, Sides
from transformer_mt.data.batches.batching import batch_bounds
from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.changes.change import A, B, C, Change
from transformer_mt.data.vocabulary.tokenizer import PieceModel, Tokenizer
from transformer_mt.text.hashes import splitmix64

_NONE = -1


class Merges:
    """Merges of two tokens into one, and their order."""

    def __init__(self, model: PieceModel) -> None:
        self._size = size = model.vocab_size()
        self._pieces = [model.id_to_piece(i) for i in range(size)]
        # Bytes, unknown and control tokens stand for themselves and are never part of a merge.
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
        """(vocabulary,) True if a word begins with the token."""
        return np.array([s or piece.startswith("▁") for s, piece in zip(self._is_special, self._pieces)])

    def letters(self, word: Sequence[int]) -> np.ndarray:
        """The letters of a word as single-letter tokens; empty if it is a special token or has a letter that
        is not a token.
        """
        text = "".join(self._pieces[i] for i in word)
        can_be_spelled = not self._is_special[word[0]] and all(letter in self._ids for letter in text)
        return np.array([self._ids[letter] for letter in text] if can_be_spelled else [], np.int64)

    def merge(self, words: Sequence[np.ndarray], dropout: float, keys_N: np.ndarray) -> list[np.ndarray]:
        """Merge the letters of each word into tokens. Each step merges the two neighbours that form the token
        with the best score, until no merge is left. At each step, each possible merge is left out with
        probability `dropout` (Provilkov et al. 2020, algorithm 1); `keys_N` are 64 random bits per word.
        """
        sizes = np.array([len(word) for word in words])
        symbols = np.full((len(words), sizes.max() + 1), _NONE, np.int64)
        symbols[np.arange(symbols.shape[1]) < sizes[:, None]] = np.concatenate(words)
        pairs, rows = self._merged_tokens(symbols[:, :-1], symbols[:, 1:]), np.arange(len(words))
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
        pairs[at, best] = self._merged_tokens(merged, symbols[at, best + 1])
        inner = best > 0
        before = at[inner], best[inner] - 1
        pairs[before] = self._merged_tokens(symbols[before], merged[inner])
        return symbols, pairs

    def _merged_tokens(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """For each pair of neighbours the token that they merge into, or _NONE if they do not merge."""
        pair = left * self._size + right
        where = np.searchsorted(self._pairs, pair)
        is_pair = (self._pairs[where] == pair) & (left != _NONE) & (right != _NONE)
        return np.where(is_pair, self._merged[where], _NONE)


# Sampled segmentations per word; each occurrence of the word uses one of them.
_SEGMENTATIONS = 16
# At most this many words per side have sampled segmentations, in order of first occurrence. Words that first
# occur later are too rare to matter.
MOST_WORDS = 2**18
# Maximum letters of the words merged in one batch, padding counted.
_LETTERS = 2**19


class SubwordDropout:
    """Segments rows of token ids of one vocabulary; several threads may use it.

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
        """From here on new words keep their usual tokens, so that the result does not depend on the order of
        calls.
        """
        self._most_words = len(self._letters)

    def lengths(self, column: Column, rows: np.ndarray, sample: int) -> np.ndarray:
        """(R,) number of tokens of each row after dropout."""
        row_W, _, sizes_W, _ = self._choose(column, rows, sample)
        return np.bincount(row_W, sizes_W, len(rows)).astype(np.int64)

    def segment(self, column: Column, rows: np.ndarray, sample: int) -> list[np.ndarray]:
        """The same text in other tokens."""
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
        """Choose a segmentation per word. Returns four arrays (W,): the word's row, where its segmentation
        begins, its length, and True if it is the usual one, which is in the column's values; others are in
        the pool.
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


_LEARNT = 16_000_000
"""At most this many rows have their words learnt beforehand, if `text_changes` is set."""


class BpeDropout(Change):
    """Segments all rows. A side that would be over-long keeps its usual tokens."""

    def __init__(
        self,
        before: Rows,
        tokenizer: Tokenizer,
        dropout: float,
        seed: int,
        max_length: int,
        text_changes: bool,
        most_words: int = MOST_WORDS,
    ) -> None:
        """Set `text_changes` if the rows before this change bring new words, or come in another order, in
        each epoch. Then only words of the unchanged corpus get other segmentations.
        """
        super().__init__(before)
        self._max_length = max_length
        # One per side, even with a shared vocabulary: the table of words is limited, and source words, which
        # come first, would fill it.
        sides = tokenizer.src, tokenizer.tgt
        self._sides = [SubwordDropout(side, dropout, seed, most_words) for side in sides]
        if text_changes:
            for number, side in enumerate(self._sides):
                for chunk in self.pairs.chunks(range(min(len(self.pairs), _LEARNT))):
                    side.learn(chunk[number])
                side.end_learning()

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        of_parts: tuple[list[np.ndarray], list[np.ndarray]] = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        first = self.part(part).start
        for chunk in self.before.chunks(epoch, self.part(part)):
            rows = np.arange(first, first + len(chunk[0].lengths))
            for side, column in enumerate(chunk):
                usual = column.lengths
                lengths = self._sides[side].lengths(column, rows, 2 * epoch + side)
                lengths = np.where(lengths < self._max_length, lengths, usual)
                of_parts[side].append(lengths.astype(np.int32) + 1)
            first += len(rows)
        return np.concatenate(of_parts[0]), np.concatenate(of_parts[1])

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        return self._segmented(0, epoch, rows, src), self._segmented(1, epoch, rows, tgt)

    def _segmented(
        self, side: int, epoch: int, rows: np.ndarray, usual: list[np.ndarray]
    ) -> list[np.ndarray]:
        others = self._sides[side].segment(Column.of(usual), rows, 2 * epoch + side)
        return [other if len(other) < self._max_length else row for other, row in zip(others, usual)]
