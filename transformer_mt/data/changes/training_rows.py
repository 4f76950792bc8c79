"""The changes of training rows in their order, and batches with word alignments."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from transformer_mt.companion import shown
from transformer_mt.config import Config
from transformer_mt.config.build_part import parts_of
from transformer_mt.data.batches.batch import Batch, Links, Rows, make_batch
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.augmentation import Augmentation
from transformer_mt.data.changes.change import Change
from transformer_mt.data.changes.objectives import DecoderRows, EncoderRows
from transformer_mt.data.changes.subword_dropout import BpeDropout
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.objectives import objective_class
from transformer_mt.settings.part import PartName

_NONE = np.zeros((0, 2), np.int64)


class AlignedRows(Change):
    """Training pairs with their links. A row whose text was changed has no links. A row that was only
    segmented differently, as by BPE-dropout, keeps its links.
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


def training_rows(config: Config, unchanged: Rows, tokenizer: Tokenizer, in_windows: bool = False) -> Rows:
    """The training pairs with all changes of the config. The text is changed first, then segmented into other
    tokens; objectives hide these tokens. With `in_windows` only a part of the pairs is read at a time.
    """
    data, rows = config.data, unchanged
    if data.augment.is_on:
        corpora = [(size, data.languages_of(entry)) for size, entry in rows.corpora]
        rows = Augmentation(rows, tokenizer, data.augment, config.seed, data.max_length, corpora)
    for kind, settings in parts_of("change", data.changes, "data.changes"):
        rows = _checked(kind(rows, config, tokenizer, **settings), tokenizer)
    if config.tokenizer.bpe_dropout:
        dropout = config.tokenizer.bpe_dropout
        is_changed = rows is not unchanged or in_windows
        rows = BpeDropout(rows, tokenizer, dropout, config.seed, data.max_length, is_changed)
    objectives = [(size, entry.objective) for size, entry in rows.corpora]
    rows = with_objectives(config, rows, objectives, tokenizer)
    if rows.links is not None and config.train.guided_alignment.weight:
        rows = AlignedRows(rows, rows.links, tokenizer)
    return rows


_TRIED = 64
"""Rows on which the change of a companion is tried."""


def _checked(change: Rows, tokenizer: Tokenizer) -> Rows:
    """Try the change of a companion on the first rows and return it. InputError if it is not a pure function,
    does not give one pair of rows for each row, reports wrong lengths, or gives ids not in the vocabulary.
    """
    what = f"the change {shown(type(change))}"
    part = range(min(_TRIED, len(change.pairs)))
    sides, again = (change.rows(0, np.arange(len(part))) for _ in range(2))
    lengths = change.lengths(0, part)
    for side, other, length, vocabulary in zip(
        sides, again, lengths, (tokenizer.all_pieces_src, tokenizer.all_pieces_tgt), strict=True
    ):
        if len(side) != len(part) or len(length) != len(part):
            raise InputError(f"{what} must give one row for each of {len(part)} rows, but gives {len(side)}")
        if [len(row) + 1 for row in side] != np.asarray(length).tolist():
            raise InputError(f"{what} must have as `lengths` the lengths of its rows, the end counted")
        if not all(np.array_equal(row, same) for row, same in zip(side, other)):
            raise InputError(f"{what} must be a pure function of the epoch and the row: two calls differ")
        if any(np.min(row, initial=0) < 0 or np.max(row, initial=0) >= len(vocabulary) for row in side):
            raise InputError(f"{what} must give ids of the vocabulary, below {len(vocabulary):,}")
    return change


def held_out_rows(config: Config, pairs: EncodedPairs, objective: PartName, tokenizer: Tokenizer) -> Rows:
    """The pairs of a validation or test set: noise and masks are the same for every seed."""
    same = config.model_copy(update={"seed": 0})
    return with_objectives(same, Rows(pairs), [(len(pairs), objective)], tokenizer)


def with_objectives(
    config: Config, rows: Rows, parts: Sequence[tuple[int, PartName]], tokenizer: Tokenizer
) -> Rows:
    """The rows as their objectives need them; `parts` is a list of (number of rows, objective), in order."""
    if config.model.kind == "encoder":
        return EncoderRows(rows, config, parts, tokenizer)
    if all(objective_class(objective).translates for _, objective in parts):
        return rows
    return DecoderRows(rows, config, parts, tokenizer)
