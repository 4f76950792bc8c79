"""`data.context`: neighbouring sentences of a document as one training pair, other ones in each epoch."""

from collections.abc import Sequence

import numpy as np

from transformer_mt.data.batches.batching import Batch, ChangingPairs, make_batch
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.batches.row_random import uniforms

_CUT = 4_000
"""Number of the random stream of a row; smaller ones are those of the other changes."""

_KEPT = 3
"""Epochs whose windows are kept: the present one, the next, which is planned, and one more."""


class Windows:
    """Training pairs in windows of at most `sentences`. The first row of a window stands for all of it, the
    others have the length 0. A window that would be over-long is divided into its sentences.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        starts: np.ndarray,
        sentences: int,
        piece: int,
        max_length: int,
        seed: int | None,
        changing: ChangingPairs | None = None,
    ) -> None:
        """`starts`: (R,) bool, where another document begins. `piece` stands between sentences. Without a
        `seed` all windows are as long as they can be; with one some begin earlier.
        """
        self._pairs, self._changing = pairs, changing
        self._starts, self._sentences, self._piece = starts, sentences, piece
        self._max_length, self._seed = max_length, seed
        self._firsts: dict[int, np.ndarray] = {}

    def lengths(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(R,) of the sources and of the targets of all rows, the EOS counted that batches add."""
        usual = self._usual_lengths(epoch)
        firsts = self._windows(epoch, usual)
        found = np.zeros_like(usual[0]), np.zeros_like(usual[1])
        for mine, lengths in zip(found, usual):
            if len(firsts):
                mine[firsts] = np.add.reduceat(lengths, firsts)
        return found

    def rows(self, epoch: int, rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Piece ids of the sources and of the targets of windows that begin with these rows."""
        firsts = self._windows(epoch)
        after = np.append(firsts, len(self._starts))[np.searchsorted(firsts, rows, "right")]
        sizes = after - rows
        members = np.concatenate([np.arange(a, b) for a, b in zip(rows, after)])
        ends = np.cumsum(sizes)
        src, tgt = self._usual_rows(epoch, members)
        spans = list(zip((ends - sizes).tolist(), ends.tolist()))
        return [self._joined(src[a:b]) for a, b in spans], [self._joined(tgt[a:b]) for a, b in spans]

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        return make_batch(*self.rows(epoch, rows))

    def _joined(self, sentences: Sequence[np.ndarray]) -> np.ndarray:
        parts = [sentences[0]]
        for sentence in sentences[1:]:
            parts += [np.array([self._piece], np.int32), sentence]
        return np.concatenate(parts)

    def _windows(self, epoch: int, usual: tuple[np.ndarray, np.ndarray] | None = None) -> np.ndarray:
        """(W,) the first rows of the windows of an epoch."""
        if (firsts := self._firsts.get(epoch)) is None:
            firsts = self._found(epoch, usual or self._usual_lengths(epoch))
            # One assignment: the next epoch is planned in another thread.
            self._firsts = dict(sorted({**self._firsts, epoch: firsts}.items())[-_KEPT:])
        return firsts

    def _found(self, epoch: int, usual: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        rows = np.arange(len(self._starts))
        is_first = self._starts
        if self._seed is not None:  # so that a model meets windows of all sizes
            is_cut = uniforms(self._seed, epoch, rows, _CUT) < 1 / (2 * self._sentences)
            is_first = is_first | is_cut
        since = rows - np.maximum.accumulate(np.where(is_first, rows, 0))
        is_first = since % self._sentences == 0
        firsts = np.flatnonzero(is_first)
        if not len(firsts):
            return firsts
        longest = np.maximum(*(np.add.reduceat(lengths, firsts) for lengths in usual))
        is_long = np.repeat(longest > self._max_length, np.diff(np.append(firsts, len(rows))))
        return np.flatnonzero(is_first | is_long)

    def _usual_lengths(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        if self._changing:
            return self._changing.lengths(epoch)
        return self._pairs.src_lengths, self._pairs.tgt_lengths

    def _usual_rows(self, epoch: int, rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        if self._changing:
            return self._changing.rows(epoch, rows)
        return [self._pairs.src(i) for i in rows], [self._pairs.tgt(i) for i in rows]
