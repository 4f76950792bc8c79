"""Rows of training and validation as an epoch has them. Letters: R rows."""

from collections.abc import Iterator

import numpy as np

from transformer_mt.data.batches.batch import Batch, make_batch
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs

Sides = tuple[list[np.ndarray], list[np.ndarray]]
"""Piece ids of the sources and of the targets of some rows, without BOS and EOS."""
Lengths = tuple[np.ndarray, np.ndarray]
"""(R,) of the sources and of the targets, the EOS counted that batches add."""


class Rows:
    """Encoded pairs, the same in all epochs. A change (`data/changes`) stands on the rows before it and
    overrides what it changes; all methods are pure functions of the epoch and the rows.
    """

    def __init__(self, pairs: EncodedPairs) -> None:
        self.pairs = pairs

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        """The lengths of a part of the data, by default of all."""
        return self.pairs.lengths(0, part), self.pairs.lengths(1, part)

    def part(self, part: range | None) -> range:
        """The rows of a part of the data, by default all."""
        return range(len(self.pairs)) if part is None else part

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        return [self.pairs.src(i) for i in rows], [self.pairs.tgt(i) for i in rows]

    def chunks(self, epoch: int, part: range) -> Iterator[Chunk]:
        """The rows of a part, in order."""
        return self.pairs.chunks(part)

    def columns(self, epoch: int, rows: np.ndarray) -> tuple[Column, Column]:
        """Piece ids of the sources and of the targets of some rows."""
        return self.pairs.gathered(0, rows), self.pairs.gathered(1, rows)

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        return make_batch(*self.rows(epoch, rows))
