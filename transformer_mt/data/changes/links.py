"""Batches with the links of their words: which target pieces stand for which source pieces."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from transformer_mt.data.batches.batch import Batch, Links, Rows, make_batch
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.change import Change
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_NONE = np.zeros((0, 2), np.int64)


class AlignedRows(Change):
    """Training pairs with their links. A row whose text was changed has none; one in other pieces, as by
    BPE-dropout, keeps them.
    """

    def __init__(self, before: Rows, links: EncodedPairs, tokenizer: Tokenizer) -> None:
        """`links` are for each pair the source positions and the target positions, without BOS."""
        super().__init__(before)
        self._links_of_pairs, self._tokenizer = links, tokenizer

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        src, tgt = self.rows(epoch, rows)
        links = [self._links(int(row), *pair) for row, pair in zip(rows, zip(src, tgt))]
        return replace(make_batch(src, tgt), links=_joined(links))

    def _links(self, row: int, src: np.ndarray, tgt: np.ndarray) -> np.ndarray:
        """(L, 2) target and source positions of a pair's links, in its current segmentation."""
        given = np.stack([self._links_of_pairs.tgt(row), self._links_of_pairs.src(row)], axis=1).astype(
            np.int64
        )
        if not len(given):
            return _NONE
        src_of = _positions(self.pairs.src(row), src, self._tokenizer.all_pieces_src)
        tgt_of = _positions(self.pairs.tgt(row), tgt, self._tokenizer.all_pieces_tgt)
        if src_of is None or tgt_of is None:
            return _NONE
        moved = {(t, s) for i, j in given.tolist() for t in tgt_of[i] for s in src_of[j]}
        return np.array(sorted(moved), np.int64)


def _positions(before: np.ndarray, now: np.ndarray, pieces: Sequence[str]) -> list[range] | None:
    """For each token of `before` the positions of the tokens of `now` that have its characters; None
    if the two texts differ.
    """
    if np.array_equal(before, now):
        return [range(i, i + 1) for i in range(len(before))]
    spellings = [[pieces[i] for i in ids.tolist()] for ids in (before, now)]
    if "".join(spellings[0]) != "".join(spellings[1]):
        return None
    ends, ends_now = (np.cumsum([len(piece) for piece in side]) for side in spellings)
    first = np.searchsorted(ends_now, np.concatenate([[0], ends[:-1]]), "right")
    last = np.searchsorted(ends_now, ends, "left")
    return [range(a, b + 1) for a, b in zip(first.tolist(), last.tolist())]


def _joined(parts: Sequence[np.ndarray]) -> Links:
    """Join the links of all sentences. The weights of each target token's links sum to 1."""
    rows = np.repeat(np.arange(len(parts)), [len(links) for links in parts])
    positions = np.concatenate([np.zeros((0, 2), np.int64), *parts])
    keys = np.column_stack([rows, positions[:, 0]])
    _, which, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    weights = 1.0 / counts[which.reshape(-1)]
    columns = rows, positions[:, 0], positions[:, 1], weights.astype(np.float32)
    return Links(*(torch.from_numpy(column) for column in columns))
