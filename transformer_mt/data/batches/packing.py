"""Packed batches and their order: several sentences in each row, none cut, so that few positions are padding
and all batches of a training have one shape.

Both sides of a pair are in the same row and have the same sentence number, by which attention to the source
finds the right sentence. Letters: R rows of a batch.
"""

import math
from dataclasses import dataclass

import numpy as np

from transformer_mt.config.root import LONGEST_ROW
from transformer_mt.data.batches.encoded_pairs import Column, row_kind
from transformer_mt.data.vocabulary.tokenizer import EOS

# cuDNN's attention with a mask may give NaN in its backward pass at other multiples of 64.
_STEP = 128
# Target share of filled positions on the fuller side; with a higher one, some pairs fit in no row.
_FULL = 0.97
# Row length at which attention costs as much as the rest of a layer; at length 128 (base) it is a tenth.
_ATTENTION = 1280
# Pairs packed at a time: a permutation is divided into parts of this size, whose arrays fit the CPU's cache.
_TOGETHER = 2**17
# Group size: among this many pairs of similar size, those with more target go to rows with more target free.
_NEIGHBOURS = 64


@dataclass(frozen=True)
class RowShape:
    """The shape of all packed batches of a training."""

    rows: int
    src: int
    """Positions of a row on the source side."""
    tgt: int
    """Positions of a row on the target side."""

    @classmethod
    def of(
        cls, batch_tokens: int, src_lengths: np.ndarray, tgt_lengths: np.ndarray, longest: int
    ) -> "RowShape":
        """The shape for pairs of these lengths, of which none is longer than `longest` in any epoch."""
        src_total, tgt_total = (int(side.sum(dtype=np.int64)) for side in (src_lengths, tgt_lengths))
        return cls.of_totals(batch_tokens, src_total, tgt_total, longest)

    @classmethod
    def of_totals(cls, batch_tokens: int, src_total: int, tgt_total: int, longest: int) -> "RowShape":
        """The shape with which an epoch costs least, for pairs with these total tokens on each side, of which
        none is longer than `longest` in any epoch.
        """
        least = max(1, math.ceil(longest / _STEP))
        sides = range(least, max(least, LONGEST_ROW // _STEP) + 1)

        def cost(row: tuple[int, int]) -> float:
            rows = max(src_total / row[0], tgt_total / row[1])
            return rows * sum(side * (_ATTENTION + side) for side in row)

        src, tgt = min(((_STEP * s, _STEP * t) for s in sides for t in sides), key=cost)
        return cls(max(1, batch_tokens // max(src, tgt)), src, tgt)

    @property
    def longest(self) -> int:
        """Positions of a row on the longer side."""
        return max(self.src, self.tgt)


def plan_packed_epoch(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, shape: RowShape, seed: int, epoch: int, window: int = 0
) -> list[np.ndarray]:
    """The batches of one epoch, or of one of its windows; each pair occurs once. A batch is an array
    (pairs, 2) with the row in the batch and the number of each pair, sorted by row.
    """
    rng = np.random.default_rng([seed, epoch, *([window] if window else [])])
    order = rng.permutation(len(src_lengths)).astype(row_kind(len(src_lengths)))
    first, parts = 0, []
    for part in np.split(order, range(_TOGETHER, len(order), _TOGETHER)):
        row = packed_rows(src_lengths[part], tgt_lengths[part], shape)
        parts.append(first + row)
        first += int(row.max(initial=-1)) + 1
    row = rng.permutation(first)[np.concatenate(parts)] if first else np.zeros(0, np.int64)
    by_row = np.argsort(row, kind="stable")
    row, pairs = row[by_row], order[by_row]
    batches = np.stack([row % shape.rows, pairs], axis=1).astype(order.dtype)
    return np.split(batches, np.searchsorted(row, range(shape.rows, first, shape.rows))) if first else []


def packed_rows(src_lengths: np.ndarray, tgt_lengths: np.ndarray, shape: RowShape) -> np.ndarray:
    """The row of each pair, counted from 0; no row is over-full on either side.

    In each round, the largest pairs that are left go to the emptiest rows, one pair per row, so that rows
    fill up evenly. Among pairs of similar size, those with more target go to rows with more room for target.
    """
    src, tgt = src_lengths.astype(np.int64), tgt_lengths.astype(np.int64)
    assert src.max(initial=0) <= shape.src and tgt.max(initial=0) <= shape.tgt, "a pair is longer than a row"
    src_share, tgt_share = src / shape.src, tgt / shape.tgt
    size, lean = np.maximum(src_share, tgt_share), tgt_share - src_share
    row, first = np.full(len(src), -1), 0
    left = np.argsort(-size, kind="stable")
    while len(left):
        filled = max(src_share[left].sum(), tgt_share[left].sum())
        count = math.ceil(filled / _FULL)
        free_src, free_tgt = np.full(count, shape.src), np.full(count, shape.tgt)
        placed = count
        while placed * 100 > count and len(left):  # stop if under 1 % of the rows got a pair: use new rows
            free = np.minimum(free_src / shape.src, free_tgt / shape.tgt)
            most = min(count, len(left))
            bins, pairs = np.argsort(-free, kind="stable")[:most], left[:most]
            group = np.arange(most) // _NEIGHBOURS
            bins = bins[np.lexsort((free_tgt[bins] / shape.tgt - free_src[bins] / shape.src, group))]
            pairs = pairs[np.lexsort((lean[pairs], group))]
            fits = (src[pairs] <= free_src[bins]) & (tgt[pairs] <= free_tgt[bins])
            bins, fitting = bins[fits], pairs[fits]
            row[fitting] = first + bins
            free_src[bins] -= src[fitting]
            free_tgt[bins] -= tgt[fitting]
            left, placed = left[row[left] < 0], len(fitting)
        first += count
    return row


def packed_side(
    pieces: Column, row: np.ndarray, rows: int, width: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Lay out one side of a batch. `pieces` are token ids without BOS and EOS; `row` is the row of each
    sentence, in ascending order. Returns (R, width) arrays of the ids with EOS, the sentence numbers, counted
    from 1 in each row (0 is padding), and the positions in sentences; and where `pieces` are in the flat ids.
    """
    lengths = pieces.lengths.astype(np.int64) + 1
    ends = np.cumsum(lengths)
    starts = ends - lengths
    is_first = np.diff(row, prepend=-1) > 0
    first = np.maximum.accumulate(np.where(is_first, np.arange(len(row)), 0))  # the row's first sentence
    at = row * width + starts - starts[first]
    positions = np.arange(ends[-1]) - np.repeat(starts, lengths)
    index = np.repeat(at, lengths) + positions
    is_last = np.zeros(len(index), bool)
    is_last[ends - 1] = True
    ids, sentences, within = (np.zeros((rows, width), kind) for kind in (np.int64, np.int32, np.int32))
    inner = index[~is_last]
    ids.flat[inner] = pieces.values
    ids.flat[index[is_last]] = EOS
    sentences.flat[index] = np.repeat(np.arange(len(row)) - first + 1, lengths)
    within.flat[index] = positions
    return ids, sentences, within, inner
