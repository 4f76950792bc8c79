"""Batches of similar length under a budget of padded tokens, corpora mixed by weight, made ahead by a thread
or a process. Their order is a pure function of (seed, epoch); for packed batches it is in packing.py.
"""

import atexit
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import torch
from torch import Tensor

from transformer_mt.data.batches.batch import Batch, Rows, make_packed_batch
from transformer_mt.data.batches.encoded_pairs import row_kind
from transformer_mt.data.batches.packing import RowShape, plan_packed_epoch
from transformer_mt.errors import InputError, Setting
from transformer_mt.processes import Fork

_WINDOWS = 3_000
"""Number of the random stream that orders blocks; the streams of rows have smaller numbers."""
_LEAST_BATCHES = 1_000


def effective_weights(
    weights: Sequence[float], sizes: Sequence[int], temperature: float, groups: Sequence[int] | None = None
) -> list[float]:
    """For each corpus, how often an epoch uses each pair: the weight times (N_max / N)^(1 - 1/T). N is the
    number of pairs after cleaning in the corpus's group, such as a translation direction; by default each
    corpus is its own group. Empty corpora have weight 0.
    """
    groups = range(len(sizes)) if groups is None else groups
    totals = dict.fromkeys(groups, 0)
    for group, size in zip(groups, sizes):
        totals[group] += size
    largest = max(totals.values(), default=0)
    exponent = 1.0 - 1.0 / temperature
    return [
        weight * (largest / totals[group]) ** exponent if size else 0.0
        for weight, size, group in zip(weights, sizes, groups)
    ]


class Mixture:
    """Consecutive parts of the training data, each with a weight. The parts are corpora, or blocks if an
    epoch is planned in several windows, one after the other.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int, windows: int = 1) -> None:
        """`sizes` are the pairs of each part, in order; `weights` their uses per epoch."""
        self._starts = np.cumsum([0, *sizes]).tolist()
        self._sizes, self._weights, self._seed = list(sizes), list(weights), seed
        self.windows = windows

    def parts(self, epoch: int, window: int = 0) -> list[range]:
        """Row ranges of a window; all rows if there is only one."""
        if self.windows == 1:
            return [range(self._starts[-1])]
        return [range(self._starts[n], self._starts[n + 1]) for n in self._numbers(epoch, window)]

    def rows(self, epoch: int, window: int = 0) -> np.ndarray | None:
        """The rows of a window to use, numbered from the first row of the window. A row may occur several
        times. None if each row is used once.

        A weight of 2.5 uses each pair of a part twice and half of them a third time. Such fractions are
        consecutive windows of one permutation of the part, so two epochs with 0.5 use each pair once.
        """
        if all(weight == 1.0 for weight in self._weights):
            return None
        parts, start = [np.zeros(0, np.int64)], 0
        for number in self._numbers(epoch, window):
            size, weight = self._sizes[number], self._weights[number]
            whole = int(weight)
            parts += [np.arange(start, start + size)] * whole
            first, last = (int(uses * (weight - whole) * size) for uses in (epoch, epoch + 1))
            if last > first:
                order = np.random.default_rng([self._seed, number]).permutation(size)
                parts.append(start + order[np.arange(first, last) % size])
            start += size
        return np.concatenate(parts)

    def _numbers(self, epoch: int, window: int) -> list[int]:
        """The parts of a window, in order. Windows are about equal, and differ between epochs."""
        if self.windows == 1:
            return list(range(len(self._sizes)))
        uses = np.multiply(self._sizes, self._weights)
        order = np.random.default_rng([self._seed, epoch, 0, _WINDOWS]).permutation(len(uses))
        middle = np.cumsum(uses[order]) - uses[order] / 2
        window_of = (middle * self.windows / max(1.0, uses.sum())).astype(np.int64)
        return sorted(order[window_of == window].tolist())


def num_windows(pairs: float, tokens: float, window_pairs: int, batch_tokens: int) -> int:
    """The number of windows of an epoch. A window has at most `window_pairs` pairs, or more if it would
    otherwise have fewer than 1,000 batches, which would leave many positions without a token.
    """
    return max(1, min(math.ceil(pairs / window_pairs), int(tokens / (_LEAST_BATCHES * batch_tokens))))


# Number of target lengths per bucket. With 2, a 4,096-token batch of Multi30k has 5 % padding, and the random
# order still decides which sentences share a batch. Other values give more padding: with 1 batches span
# buckets, and with 3 and 4 the lengths in a bucket differ more.
_BUCKET = 2


def plan_epoch(
    src_lengths: np.ndarray,
    tgt_lengths: np.ndarray,
    batch_tokens: int,
    seed: int,
    epoch: int,
    window: int = 0,
) -> list[np.ndarray]:
    """The batches of one epoch, or of one of its windows, as arrays of row numbers. Each pair occurs once.

    In a batch, sentences x longest side (of both sides) is at most `batch_tokens`.
    """
    rng = np.random.default_rng([seed, epoch, *([window] if window else [])])
    # Sort by bucket of target length, then by source length: ascending in one bucket, descending in the next,
    # so that a batch across two buckets has similar lengths. The bucket bounds differ between epochs.
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
        # A batch is at least as wide as its first sentence, so no more than these can fit. Take at least one.
        window = lengths[start : start + batch_tokens // max(1, int(lengths[start])) + 1]
        positions = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        fitting = max(1, int(np.searchsorted(positions, batch_tokens, "right")))
        start += fitting
        if start < len(lengths):
            bounds.append(start)
    return bounds


class TrainingBatches:
    """Endless batches over the epochs. Its state is a few numbers; to reach any position, it plans only
    one epoch, or one window of an epoch.

    All ranks iterate over the same plan and each builds only its own batches. So the position is the same on
    all ranks, and stays valid if a run is resumed with another number of ranks. The next plan is made
    ahead of time by a thread.
    """

    def __init__(
        self,
        rows: Rows,
        batch_tokens: int,
        seed: int,
        rank: int = 0,
        num_ranks: int = 1,
        mixture: Mixture | None = None,
        update_tokens: int = 0,
        shape: RowShape | None = None,
    ) -> None:
        """A `mixture` chooses the rows of an epoch. With `update_tokens` each planned batch is a whole update
        of that many padded tokens, and `batch_tokens` only limits what a rank computes at a time. With a
        `shape`, which must have room for each pair in any epoch, batches are packed.
        """
        self._rows, self._batch_tokens, self._seed = rows, batch_tokens, seed
        self._rank, self._num_ranks, self._update_tokens = rank, num_ranks, update_tokens
        self._mixture = mixture or Mixture([len(rows.pairs)], [1.0], seed)
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
        if not len(rows_of_rank):  # fewer sentences than ranks: this rank gets an idle batch
            return [self._make(rows[:1]).idle()]
        return self._make(rows_of_rank).split(self._batch_tokens)

    def _packed_share(self, plan: np.ndarray, shape: RowShape) -> list[Batch]:
        """This rank's rows of an update in batches of at most `batch_tokens`. All ranks have the same
        number of batches, all of one shape.
        """
        row, pairs = plan.T
        is_ours = row % self._num_ranks == self._rank
        shape = replace(shape, rows=-(-shape.rows // self._num_ranks))
        if is_ours.any():
            share = self._packed(row[is_ours] // self._num_ranks, pairs[is_ours], shape)
        else:  # fewer rows than ranks: this rank gets an idle batch
            share = self._packed(0 * row[:1], pairs[:1], shape).idle()
        return share.split(max(self._batch_tokens, shape.longest))

    def _packed(self, row: np.ndarray, pairs: np.ndarray, shape: RowShape) -> Batch:
        return make_packed_batch(*self._rows.columns(self.epoch, pairs), row, shape)

    def _make(self, rows: np.ndarray) -> Batch:
        if self.shape is not None:
            return self._packed(rows[:, 0], rows[:, 1], self.shape)
        return self._rows.batch(self.epoch, rows)

    def _next_rows(self) -> np.ndarray:
        while self.index >= len(self._batches):  # a small weight leaves whole epochs empty
            (self.epoch, self.window), self.index = self._after(self.epoch, self.window), 0
        rows = self._batches[self.index]
        self.index += 1
        return rows

    def _after(self, epoch: int, window: int) -> tuple[int, int]:
        """The epoch and the window that come next."""
        return (epoch, window + 1) if window + 1 < self._mixture.windows else (epoch + 1, 0)

    @property
    def _batches(self) -> list[np.ndarray]:
        """The plan of the current window. Drops earlier plans and starts planning the next window."""
        present = self.epoch, self.window
        needed = present, self._after(*present)
        if self._plans.keys() - needed:
            self._plans = {window: plan for window, plan in self._plans.items() if window in needed}
            self._rows.pairs.close_all_but(part for window in needed for part in self._mixture.parts(*window))
        for window in needed:
            if window not in self._plans:
                self._plans[window] = self._planner.submit(self._plan, *window)
        return self._plans[present].result()

    def _plan(self, epoch: int, window: int) -> list[np.ndarray]:
        budget, kind = self._update_tokens or self._batch_tokens, row_kind(len(self._rows.pairs))
        if not (parts := self._mixture.parts(epoch, window)):  # with large blocks a window may have none
            return []
        lengths = [self._rows.lengths(epoch, part) for part in parts]
        src_lengths, tgt_lengths = map(np.concatenate, zip(*lengths))
        rows = self._mixture.rows(epoch, window)
        if rows is not None:
            src_lengths, tgt_lengths = src_lengths[rows], tgt_lengths[rows]
        if self._mixture.windows > 1:
            data_rows = np.concatenate([np.arange(part.start, part.stop, dtype=kind) for part in parts])
            rows = data_rows if rows is None else data_rows[rows]
        if self.shape is not None:
            plan = plan_packed_epoch(src_lengths, tgt_lengths, self.shape, self._seed, epoch, window)
            if rows is not None:
                plan = [np.stack([batch[:, 0], rows[batch[:, 1]]], axis=1).astype(kind) for batch in plan]
            return plan
        plan = plan_epoch(src_lengths, tgt_lengths, budget, self._seed, epoch, window)
        return plan if rows is None else [rows[batch].astype(kind) for batch in plan]

    def settle(self) -> None:
        """Wait until the thread has finished all plans."""
        self._planner.shutdown()
        self._planner = ThreadPoolExecutor(1, "plan")

    def close(self) -> None:
        """End the thread, without waiting for the plan it is making, and close the files of windows."""
        self._planner.shutdown(wait=False, cancel_futures=True)
        if self._mixture.windows > 1:
            self._rows.pairs.close_all_but(())

    def updates_of_first_epoch(self, accumulate: int) -> float:
        """The number of updates in the first epoch; an estimate if it has several windows."""
        # A resumed run plans the first epoch only to count its batches.
        is_first = (self.epoch, self.window) == (0, 0)
        batches = len(self._batches if is_first else self._plan(0, 0)) * self._mixture.windows
        return batches if self._update_tokens else batches / (accumulate * self._num_ranks)

    @property
    def epochs(self) -> float:
        """Epochs done, with the fraction of the present one."""
        done_of_window = self.index / max(1, len(self._batches))
        return self.epoch + (self.window + done_of_window) / self._mixture.windows

    def state_dict(self) -> dict[str, int]:
        windows = self._mixture.windows
        return {"epoch": self.epoch, "window": self.window, "windows": windows, "index": self.index}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """InputError if the saved position belongs to another division into windows."""
        before, windows = state.get("windows", 1), self._mixture.windows
        if before != windows:
            raise InputError(
                f"this run began with {before:,} windows per epoch, but data.window_pairs and the batch size "
                f"now give {windows:,}; set them as they were, or start over with ",
                Setting("fresh", True),
            )
        self.epoch, self.window, self.index = state["epoch"], state.get("window", 0), state["index"]
        self._plans = {}


def validation_batches(rows: Rows, batch_tokens: int) -> Iterator[Batch]:
    """Every row once, in a fixed order, as in the first epoch."""
    for batch in plan_epoch(*rows.lengths(0), batch_tokens, seed=0, epoch=0):
        yield rows.batch(0, batch)


Made = tuple[list[Batch], dict[str, int], float]
"""The batches of an update, the state of the TrainingBatches after it, and the epochs done."""


class BatchProcess:
    """A fork of this process that makes the batches of one update after the other, one ahead."""

    def __init__(self, batches: TrainingBatches, accumulate: int) -> None:
        batches.settle()  # threads do not exist in the fork, so a plan begun here would never end there
        self._fork = Fork(partial(_make, batches, accumulate), ())
        atexit.register(self.close)  # before multiprocessing's exit handler, which waits for it

    def next_update(self) -> Made:
        """WorkError if the process has ended."""
        made: Made = self._fork.receive()
        batches, state, epochs = made
        return [batch.each(torch.from_numpy) for batch in batches], state, epochs

    def close(self) -> None:
        atexit.unregister(self.close)
        self._fork.kill()


def _make(batches: TrainingBatches, accumulate: int, pipe: Connection) -> None:
    torch.set_num_threads(1)  # the parent's threads do not exist in the fork
    as_array: Callable[[Tensor], Tensor] = Tensor.numpy  # type: ignore[assignment]
    while True:
        made = [batch.each(as_array) for batch in batches.next_update(accumulate)]
        pipe.send((made, batches.state_dict(), batches.epochs))


class BatchPrefetcher:
    """While an update computes, a thread makes the batches of the next one, and puts them where a GPU can
    fetch them.

    Its state is the position after the batches handed out: prefetched ones are made again by a resumed run.
    """

    def __init__(
        self, batches: TrainingBatches, accumulate: int, device: torch.device, own_process: bool = False
    ) -> None:
        """With `own_process` another process makes the batches."""
        self._batches, self._accumulate, self._pinned = batches, accumulate, device.type == "cuda"
        self._own_process = own_process
        self._process: BatchProcess | None = None
        self._thread = ThreadPoolExecutor(1, "batches")
        self._next: Future[Made] | None = None
        self._position, self.epochs = batches.state_dict(), 0.0
        """Epochs done, with the fraction of the present one."""

    @property
    def shape(self) -> RowShape | None:
        """The shape of packed batches; None if batches are padded."""
        return self._batches.shape

    @property
    def updates_per_epoch(self) -> float:
        """The updates in which the first epoch is trained."""
        return self._batches.updates_of_first_epoch(self._accumulate)

    def next_update(self) -> list[Batch]:
        """This rank's batches of the next update."""
        if self._own_process and self._process is None:
            self._process = BatchProcess(self._batches, self._accumulate)
        made = self._next or self._thread.submit(self._make)
        batches, self._position, self.epochs = made.result()
        self._next = self._thread.submit(self._make)
        return batches

    def _make(self) -> Made:
        if self._process is not None:
            batches, state, epochs = self._process.next_update()
        else:
            batches = self._batches.next_update(self._accumulate)
            state, epochs = self._batches.state_dict(), self._batches.epochs
        if self._pinned:
            batches = [batch.pinned() for batch in batches]
        return batches, state, epochs

    def close(self) -> None:
        """End the thread, without waiting for the batches it is making."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._batches.close()
        if self._process is not None:
            self._process.close()

    def state_dict(self) -> dict[str, int]:
        return self._position

    def load_state_dict(self, state: dict[str, int]) -> None:
        if self._next is not None:
            self._next.result()
            self._next = None
        if self._process is not None:
            self._process.close()
            self._process = None
        self._batches.load_state_dict(state)
        self._position, self.epochs = self._batches.state_dict(), self._batches.epochs
