"""Training rows as an epoch has them, and what changes them. Letters: R rows."""

from collections.abc import Iterator

import numpy as np

from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs

_BLOCK = 10_000

Sides = tuple[list[np.ndarray], list[np.ndarray]]
"""Piece ids of the sources and of the targets of some rows, without BOS and EOS."""
Lengths = tuple[np.ndarray, np.ndarray]
"""(R,) of the sources and of the targets, the EOS counted that batches add."""


class Rows:
    """Encoded pairs, the same in all epochs. A change stands on the rows before it and overrides what it
    changes; all methods are pure functions of the epoch and the rows.
    """

    def __init__(self, pairs: EncodedPairs) -> None:
        self.pairs = pairs

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        """The lengths of a part of the data, by default of all."""
        return self.pairs.lengths(0, self.part(part)), self.pairs.lengths(1, self.part(part))

    def part(self, part: range | None) -> range:
        """The rows of a part of the data, by default all."""
        return range(len(self.pairs)) if part is None else part

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        return [self.pairs.src(i) for i in rows], [self.pairs.tgt(i) for i in rows]

    def chunks(self, epoch: int, part: range) -> Iterator[Chunk]:
        """The rows of a part, in order."""
        return self.pairs.chunks(part)

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        return make_batch(*self.rows(epoch, rows))


class Change(Rows):
    """A change of the rows before it. This one changes nothing."""

    def __init__(self, before: Rows) -> None:
        super().__init__(before.pairs)
        self.before = before

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        return self.before.lengths(epoch, part)

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        return self.before.rows(epoch, rows)

    def chunks(self, epoch: int, part: range) -> Iterator[Chunk]:
        for start in range(part.start, part.stop, _BLOCK):
            src, tgt = self.rows(epoch, np.arange(start, min(start + _BLOCK, part.stop)))
            yield Column.of(src), Column.of(tgt)


class ChangeOfSome(Change):
    """A change of the rows that it chooses in an epoch; the others stay as they are."""

    def chosen(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        """(R,) bool."""
        raise NotImplementedError

    def change(self, epoch: int, rows: np.ndarray, sides: Sides) -> None:
        """Replace the pieces of chosen rows in `sides`."""
        raise NotImplementedError

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        chosen = np.flatnonzero(self.chosen(epoch, rows)).tolist()
        if chosen:
            sides = [src[i] for i in chosen], [tgt[i] for i in chosen]
            self.change(epoch, rows[chosen], sides)
            for i, *pair in zip(chosen, *sides):
                src[i], tgt[i] = pair
        return src, tgt

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        first = self.part(part).start
        every = np.arange(first, self.part(part).stop)
        chosen = every[self.chosen(epoch, every)]
        lengths = self.before.lengths(epoch, part)
        lengths = lengths[0].copy(), lengths[1].copy()
        for start in range(0, len(chosen), _BLOCK):
            rows = chosen[start : start + _BLOCK]
            for side, ids in zip(lengths, self.rows(epoch, rows)):
                side[rows - first] = [len(row) + 1 for row in ids]
        return lengths
