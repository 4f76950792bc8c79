"""Batches of similar length under a budget of padded tokens; their order is a pure function of
(seed, epoch).
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.data.batches.encoded_pairs import Column, EncodedPairs, row_kind
from transformer_mt.data.batches.mixture import Mixture
from transformer_mt.data.batches.packing import RowShape, packed_side, plan_packed_epoch
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
from transformer_mt.errors import InputError, Setting

# Target lengths that share a bucket. Two keep 95 % of the tokens of a 4,096-token batch of Multi30k real, and
# still let the random order decide which sentences share a batch; one keeps less (batches span buckets),
# three and four pad more.
_BUCKET = 2


class ChangingPairs(Protocol):
    """Pairs whose pieces change from epoch to epoch."""

    def lengths(self, epoch: int, part: range | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of the sources and of the targets of a part of the rows, by default of all, EOS counted."""
        ...

    def rows(self, epoch: int, rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Piece ids of the sources and of the targets of some rows."""
        ...

    def batch(self, epoch: int, rows: np.ndarray) -> "Batch":
        """The padded batch of these rows."""
        ...


@dataclass(frozen=True)
class Links:
    """L pairs of a target piece and a source piece that it stands for."""

    rows: Tensor
    """(L,) sentences, in order."""
    tgt: Tensor
    """(L,) positions in tgt_out."""
    src: Tensor
    """(L,) positions in src."""
    weights: Tensor
    """(L,) float32: those of one target piece sum to 1."""

    def of_rows(self, start: int, stop: int) -> "Links":
        """The links of some sentences, counted from the first of them."""
        begin, end = torch.searchsorted(self.rows, torch.tensor([start, stop])).tolist()
        kept = self._each(lambda tensor: tensor[begin:end])
        return replace(kept, rows=kept.rows - start)

    def _each(self, move: Callable[[Tensor], Tensor]) -> "Links":
        return Links(move(self.rows), move(self.tgt), move(self.src), move(self.weights))


@dataclass(frozen=True)
class Batch:
    """B sentence pairs, padded to the longest on each side. Masks: True = a real token."""

    src: Tensor
    """(B, S) piece ids, EOS last."""
    src_mask: Tensor
    """(B, S) bool."""
    tgt_in: Tensor
    """(B, T) BOS, then piece ids."""
    tgt_out: Tensor
    """(B, T) piece ids, EOS last, PAD after."""
    real: Tensor | None
    """(num_tokens,) the positions of the real target tokens in tgt_out.flatten(): loss is computed there
    only. None in packed batches, whose sizes are all equal: loss is computed everywhere, that of PAD is 0.
    """
    num_tokens: int
    """Real target tokens, EOS counted: what losses are divided by and speed is counted in."""
    links: Links | None = None
    """The links between pieces; None where it is not known."""
    packing: tuple[Tensor, ...] | None = None
    """The fields of `model.masks.Packing`, for rows that hold several sentences each (packing.py); None where
    each has one.
    """

    @property
    def num_positions(self) -> int:
        """Rows x longest side, padding counted."""
        return len(self.src) * max(self.src.size(1), self.tgt_in.size(1))

    def split(self, most: int) -> list["Batch"]:
        """The same sentences in batches of at most `most` positions, or of one sentence."""
        return self._in_pieces(max(1, most // max(self.src.size(1), self.tgt_in.size(1))))

    def parts(self, count: int) -> list["Batch"]:
        """The same sentences in at most `count` batches of about equal size."""
        return self._in_pieces(-(-len(self.src) // count))

    def _in_pieces(self, size: int) -> list["Batch"]:
        """The same sentences in batches of `size`."""
        if size >= len(self.src):
            return [self]
        if self.packing is not None:
            return self._in_equal_pieces(size)
        columns = (self.src, self.src_mask, self.tgt_in, self.tgt_out)
        parts = zip(*(column.split(size) for column in columns))
        batches = [
            _with_real_positions(src, src_mask, tgt_in, tgt_out) for src, src_mask, tgt_in, tgt_out in parts
        ]
        if (links := self.links) is not None:
            starts = range(0, len(self.src), size)
            batches = [replace(b, links=links.of_rows(i, i + size)) for b, i in zip(batches, starts)]
        return batches if self.num_tokens else [batch.idle() for batch in batches]

    def _in_equal_pieces(self, size: int) -> list["Batch"]:
        """The same rows in batches of at most `size`, all of one shape: the last is filled with empty
        rows.
        """
        count = -(-len(self.src) // size)
        empty = -len(self.src) % count
        padded = self.each(lambda tensor: F.pad(tensor, (0, 0, 0, empty)))
        pieces = [padded.each(partial(_part, number=i, count=count)) for i in range(count)]
        return [replace(piece, num_tokens=int((piece.tgt_out != PAD).sum())) for piece in pieces]

    def idle(self) -> "Batch":
        """The same sentences without anything to predict: what is computed of them adds nothing."""
        if self.real is None:
            return replace(self, tgt_out=torch.full_like(self.tgt_out, PAD), num_tokens=0)
        links = None if self.links is None else self.links.of_rows(0, 0)
        return replace(self, real=self.real[:0], num_tokens=0, links=links)

    def pinned(self) -> "Batch":
        """In pinned memory, from which a GPU copies asynchronously."""
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device) -> "Batch":
        """On the device; a GPU copies from pinned memory, for which nothing waits."""
        if device.type == "cuda":
            return self.pinned().each(lambda tensor: tensor.to(device, non_blocking=True))
        return self.each(lambda tensor: tensor.to(device))

    @property
    def is_real(self) -> Tensor:
        """(B, T) True = a target token, not padding."""
        return self.tgt_out != PAD

    @property
    def tensors(self) -> list[Tensor]:
        """All its tensors, without those of `links`."""
        fields = (self.src, self.src_mask, self.tgt_in, self.tgt_out, self.real, *(self.packing or ()))
        return [tensor for tensor in fields if tensor is not None]

    def each(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch of what `move` makes of each tensor."""
        src, src_mask, tgt_in, tgt_out = map(move, (self.src, self.src_mask, self.tgt_in, self.tgt_out))
        real = None if self.real is None else move(self.real)
        links = None if self.links is None else self.links._each(move)
        packing = None if self.packing is None else tuple(map(move, self.packing))
        return Batch(src, src_mask, tgt_in, tgt_out, real, self.num_tokens, links, packing)


def _part(tensor: Tensor, number: int, count: int) -> Tensor:
    """One of `count` equal parts of the rows."""
    return tensor.chunk(count)[number]


def plan_epoch(
    src_lengths: np.ndarray,
    tgt_lengths: np.ndarray,
    batch_tokens: int,
    seed: int,
    epoch: int,
    window: int = 0,
) -> list[np.ndarray]:
    """The batches of one epoch, or of one of its windows, each an array of row numbers, each pair once.

    In a batch, sentences x longest side (of both sides) is at most `batch_tokens`.
    """
    rng = np.random.default_rng([seed, epoch, *([window] if window else [])])
    # Buckets by target length; inside them by source length, up in one and down in the next, so that a batch
    # that spans two buckets meets like with like. The grid of buckets moves from epoch to epoch.
    bucket = (tgt_lengths + rng.integers(_BUCKET)) // _BUCKET
    snake = np.where(bucket % 2 == 0, src_lengths, -src_lengths)
    order = np.lexsort((rng.random(len(bucket), dtype=np.float32), snake, bucket))
    bounds = batch_bounds(np.maximum(src_lengths, tgt_lengths)[order], batch_tokens)
    batches = np.split(order.astype(row_kind(len(order))), bounds) if len(order) else []
    return [batches[i] for i in rng.permutation(len(batches))]


def batch_bounds(lengths: np.ndarray, batch_tokens: int) -> list[int]:
    """Bounds of batches for sentences in this order: each takes as many as the budget allows."""
    bounds, start = [], 0
    while start < len(lengths):
        # No more than these fit, because the first one is not longer than the longest. At least one is taken.
        window = lengths[start : start + batch_tokens // max(1, int(lengths[start])) + 1]
        positions = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        fitting = max(1, int(np.searchsorted(positions, batch_tokens, "right")))
        start += fitting
        if start < len(lengths):
            bounds.append(start)
    return bounds


def make_batch(src: Sequence[np.ndarray], tgt: Sequence[np.ndarray]) -> Batch:
    """Pad the pairs of piece ids, without BOS and EOS, into a Batch."""
    src_ids = _pad(src, add=EOS, first=False)
    tgt_in, tgt_out = _pad(tgt, add=BOS, first=True), _pad(tgt, add=EOS, first=False)
    return _with_real_positions(src_ids, src_ids != PAD, tgt_in, tgt_out)


def make_packed_batch(src: Column, tgt: Column, row: np.ndarray, shape: RowShape) -> Batch:
    """The batch of pairs of piece ids, without BOS and EOS, in these rows; the pairs are in their order."""
    src_ids, src_sentences, src_positions, _ = packed_side(src, row, shape.rows, shape.src)
    tgt_out, tgt_sentences, tgt_positions, pieces = packed_side(tgt, row, shape.rows, shape.tgt)
    tgt_in = np.where((tgt_positions == 0) & (tgt_sentences > 0), BOS, PAD)
    tgt_in.flat[pieces + 1] = tgt.values
    arrays = src_ids, src_ids != PAD, tgt_in, tgt_out
    packing = src_sentences, src_positions, tgt_sentences, tgt_positions
    num_tokens = len(tgt.values) + len(tgt.lengths)
    src_tensor, mask, in_tensor, out_tensor = map(torch.from_numpy, arrays)
    return Batch(
        src_tensor, mask, in_tensor, out_tensor, None, num_tokens, None, tuple(map(torch.from_numpy, packing))
    )


def make_encoder_batch(read: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> Batch:
    """The batch of an encoder alone, padded: what is read, and at each position what is predicted; PAD where
    nothing is.
    """
    src, targets = _filled(read), _filled(predicted)
    return _with_real_positions(src, src != PAD, src, targets)


def _filled(rows: Sequence[np.ndarray]) -> Tensor:
    """(B, longest): the rows, then PAD."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)


def _with_real_positions(src: Tensor, src_mask: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Batch:
    real = (tgt_out != PAD).flatten().nonzero()[:, 0]
    return Batch(src, src_mask, tgt_in, tgt_out, real, len(real))


def _pad(rows: Sequence[np.ndarray], add: int, first: bool) -> Tensor:
    """(B, longest + 1): the rows with `add` before or after them, then PAD."""
    lengths = np.fromiter(map(len, rows), np.int64, count=len(rows))
    padded = np.full((len(rows), 1 + lengths.max()), PAD, np.int64)
    columns, ends = np.arange(padded.shape[1]), lengths[:, None]
    padded[(columns > 0) & (columns <= ends) if first else columns < ends] = np.concatenate(rows)
    padded[np.arange(len(rows)), 0 if first else lengths] = add
    return torch.from_numpy(padded)


class TrainingBatches:
    """Endless batches over the epochs. Its state is a few numbers; any position is reached by one plan, of an
    epoch or of one of its windows.

    All ranks iterate over the same plan and each builds only its own batches. So the position is the same on
    all ranks, and stays valid if a run is resumed with another number of ranks. The next plan is made
    ahead of time by a thread.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        batch_tokens: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        changing: ChangingPairs | None = None,
        mixture: Mixture | None = None,
        update_tokens: int = 0,
        shape: RowShape | None = None,
    ) -> None:
        """With `changing`, batches are planned and made of the pieces it gives the pairs in an epoch; a
        `mixture` chooses the pairs of an epoch. With `update_tokens` the plan is one of whole updates of so
        many padded tokens, and `batch_tokens` only limits what a rank computes at a time. With a `shape`,
        which has room for each pair in any epoch, batches are packed.
        """
        self._pairs, self._batch_tokens, self._seed = pairs, batch_tokens, seed
        self._rank, self._num_ranks, self._changing = rank, num_ranks, changing
        self._mixture, self._update_tokens = mixture or Mixture([len(pairs)], [1.0], seed), update_tokens
        self.shape = shape
        self.epoch, self.window, self.index = 0, 0, 0
        self._planner = ThreadPoolExecutor(1, "plan")
        self._plans: dict[tuple[int, int], Future[list[np.ndarray]]] = {}

    def next_update(self, accumulate: int = 1) -> list[Batch]:
        """This rank's batches of the next update: `accumulate`, or with `update_tokens` as many as needed."""
        if self._update_tokens:
            return self._share(self._next_rows())
        batches_of_rank = []
        for i in range(accumulate * self._num_ranks):
            rows = self._next_rows()
            if i % self._num_ranks == self._rank:
                batches_of_rank.append(self._make(rows))
        return batches_of_rank

    def _share(self, rows: np.ndarray) -> list[Batch]:
        """This rank's share of an update, in batches of at most `batch_tokens`."""
        if self.shape is not None:
            return self._packed_share(rows, self.shape)
        rows_of_rank = rows[self._rank :: self._num_ranks]
        if not len(rows_of_rank):  # fewer sentences than ranks: this one computes without adding anything
            return [self._make(rows[:1]).idle()]
        return self._make(rows_of_rank).split(self._batch_tokens)

    def _packed_share(self, plan: np.ndarray, shape: RowShape) -> list[Batch]:
        """This rank's rows of an update, in batches of at most `batch_tokens`: the same number on each rank,
        all of one shape.
        """
        row, pairs = plan.T
        is_ours = row % self._num_ranks == self._rank
        shape = replace(shape, rows=-(-shape.rows // self._num_ranks))
        if is_ours.any():
            share = self._packed(row[is_ours] // self._num_ranks, pairs[is_ours], shape)
        else:  # fewer rows than ranks: this one computes without adding anything
            share = self._packed(0 * row[:1], pairs[:1], shape).idle()
        return share.split(max(self._batch_tokens, shape.longest))

    def _packed(self, row: np.ndarray, pairs: np.ndarray, shape: RowShape) -> Batch:
        if self._changing is not None:
            src, tgt = map(Column.of, self._changing.rows(self.epoch, pairs))
        else:
            src, tgt = (self._pairs.gathered(side, pairs) for side in (0, 1))
        return make_packed_batch(src, tgt, row, shape)

    def _make(self, rows: np.ndarray) -> Batch:
        if self.shape is not None:
            return self._packed(rows[:, 0], rows[:, 1], self.shape)
        if self._changing is not None:
            return self._changing.batch(self.epoch, rows)
        return make_batch([self._pairs.src(i) for i in rows], [self._pairs.tgt(i) for i in rows])

    def _next_rows(self) -> np.ndarray:
        while self.index >= len(self._batches):  # a small weight leaves whole epochs empty
            (self.epoch, self.window), self.index = self._after(self.epoch, self.window), 0
        rows = self._batches[self.index]
        self.index += 1
        return rows

    def _after(self, epoch: int, window: int) -> tuple[int, int]:
        """The next epoch and window."""
        return (epoch, window + 1) if window + 1 < self._mixture.windows else (epoch + 1, 0)

    @property
    def _batches(self) -> list[np.ndarray]:
        """The plan of the present window. Those before are dropped, and that of the next is begun."""
        present = self.epoch, self.window
        needed = present, self._after(*present)
        if self._plans.keys() - needed:
            self._plans = {of: plan for of, plan in self._plans.items() if of in needed}
            self._pairs.close_all_but(part for of in needed for part in self._mixture.parts(*of))
        for of in needed:
            if of not in self._plans:
                self._plans[of] = self._planner.submit(self._plan, *of)
        return self._plans[present].result()

    def _lengths(self, epoch: int, part: range) -> tuple[np.ndarray, np.ndarray]:
        if self._changing is not None:
            return self._changing.lengths(epoch, part)
        return self._pairs.lengths(0, part), self._pairs.lengths(1, part)

    def _plan(self, epoch: int, window: int) -> list[np.ndarray]:
        budget, kind = self._update_tokens or self._batch_tokens, row_kind(len(self._pairs))
        if not (parts := self._mixture.parts(epoch, window)):  # blocks may be larger than a window
            return []
        lengths = [self._lengths(epoch, part) for part in parts]
        src_lengths, tgt_lengths = map(np.concatenate, zip(*lengths))
        rows = self._mixture.rows(epoch, window)
        if rows is not None:
            src_lengths, tgt_lengths = src_lengths[rows], tgt_lengths[rows]
        if self._mixture.windows > 1:
            of_data = np.concatenate([np.arange(part.start, part.stop, dtype=kind) for part in parts])
            rows = of_data if rows is None else of_data[rows]
        if self.shape is not None:
            plan = plan_packed_epoch(src_lengths, tgt_lengths, self.shape, self._seed, epoch, window)
            if rows is not None:
                plan = [np.stack([batch[:, 0], rows[batch[:, 1]]], axis=1).astype(kind) for batch in plan]
            return plan
        plan = plan_epoch(src_lengths, tgt_lengths, budget, self._seed, epoch, window)
        return plan if rows is None else [rows[batch].astype(kind) for batch in plan]

    def settle(self) -> None:
        """Wait until the thread plans nothing."""
        self._planner.shutdown()
        self._planner = ThreadPoolExecutor(1, "plan")

    def close(self) -> None:
        """End the thread, without waiting for the plan it is making, and close the files of windows."""
        self._planner.shutdown(wait=False, cancel_futures=True)
        if self._mixture.windows > 1:
            self._pairs.close_all_but(())

    def updates_of_first_epoch(self, accumulate: int) -> float:
        """The updates in which the first epoch is trained; of several windows about."""
        # A resumed run has no other use for the plan of the first epoch.
        is_first = (self.epoch, self.window) == (0, 0)
        batches = len(self._batches if is_first else self._plan(0, 0)) * self._mixture.windows
        return batches if self._update_tokens else batches / (accumulate * self._num_ranks)

    @property
    def epochs(self) -> float:
        """Epochs done, with the fraction of the present one."""
        of_window = self.index / max(1, len(self._batches))
        return self.epoch + (self.window + of_window) / self._mixture.windows

    def state_dict(self) -> dict[str, int]:
        windows = self._mixture.windows
        return {"epoch": self.epoch, "window": self.window, "windows": windows, "index": self.index}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """InputError if the position is one in other windows."""
        before, windows = state.get("windows", 1), self._mixture.windows
        if before != windows:
            raise InputError(
                f"data.window_pairs must divide an epoch into as many windows as when this run began, "
                f"{before:,}, but gives {windows:,}; restore it and the size of batches, or start over with ",
                Setting("fresh", True),
            )
        self.epoch, self.window, self.index = state["epoch"], state.get("window", 0), state["index"]
        self._plans = {}


def validation_batches(
    pairs: EncodedPairs, batch_tokens: int, changing: ChangingPairs | None = None
) -> Iterator[Batch]:
    """Every pair once, in a fixed order, as `changing` has them in its first epoch."""
    lengths = changing.lengths(0) if changing else (pairs.src_lengths, pairs.tgt_lengths)
    for rows in plan_epoch(*lengths, batch_tokens, seed=0, epoch=0):
        if changing is not None:
            yield changing.batch(0, rows)
            continue
        yield make_batch([pairs.src(i) for i in rows], [pairs.tgt(i) for i in rows])
