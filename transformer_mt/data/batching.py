"""Batches of similar length under a budget of padded tokens; their order is a pure function of (seed, epoch)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from transformer_mt.data.dataset import EncodedPairs
from transformer_mt.data.tokenizer import BOS, EOS, PAD

# Target lengths that share a bucket. Two keep 95 % of the tokens of a 4,096-token batch of Multi30k real, and still
# let an epoch's dice decide which sentences meet; one keeps less (batches span buckets), three and four pad more.
_BUCKET = 2


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
    num_tokens: int
    """Real target tokens, EOS counted: what losses are divided by and speed is counted in."""

    def to(self, device: torch.device) -> "Batch":
        def move(tensor: Tensor) -> Tensor:
            return tensor.to(device, non_blocking=True)

        tensors = move(self.src), move(self.src_mask), move(self.tgt_in), move(self.tgt_out)
        return Batch(*tensors, self.num_tokens)


def plan_epoch(
    src_lengths: np.ndarray, tgt_lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """The batches of one epoch, each an array of row numbers, each pair once.

    In a batch, sentences x longest side (of both sides) is at most `batch_tokens`.
    """
    rng = np.random.default_rng([seed, epoch])
    # Buckets by target length; inside them by source length, up in one and down in the next, so that a batch that
    # spans two buckets meets like with like. The grid of buckets moves from epoch to epoch.
    bucket = (tgt_lengths + rng.integers(_BUCKET)) // _BUCKET
    snake = np.where(bucket % 2 == 0, src_lengths, -src_lengths)
    order = np.lexsort((rng.random(len(bucket), dtype=np.float32), snake, bucket))
    longest = np.maximum(src_lengths, tgt_lengths)[order].tolist()
    bounds, start, most = [], 0, 0
    for i, length in enumerate(longest):
        most = max(most, length)
        if most * (i + 1 - start) > batch_tokens:
            bounds.append(i)
            start, most = i, length
    batches = np.split(order.astype(np.int32), bounds) if len(order) else []
    return [batches[i] for i in rng.permutation(len(batches))]


def make_batch(src: Sequence[np.ndarray], tgt: Sequence[np.ndarray]) -> Batch:
    """Pad the pairs of piece ids, without BOS and EOS, into a Batch."""
    src_ids = _pad(src, add=EOS, first=False)
    tgt_out = _pad(tgt, add=EOS, first=False)
    return Batch(
        src=src_ids,
        src_mask=src_ids != PAD,
        tgt_in=_pad(tgt, add=BOS, first=True),
        tgt_out=tgt_out,
        num_tokens=sum(map(len, tgt)) + len(tgt),
    )


def _pad(rows: Sequence[np.ndarray], add: int, first: bool) -> Tensor:
    """(B, longest + 1): the rows with `add` before or after them, then PAD."""
    padded = np.full((len(rows), 1 + max(map(len, rows))), PAD, np.int64)
    for i, row in enumerate(rows):
        if first:
            padded[i, 0] = add
            padded[i, 1 : len(row) + 1] = row
        else:
            padded[i, : len(row)] = row
            padded[i, len(row)] = add
    return torch.from_numpy(padded)


class TrainingBatches:
    """Endless batches over the epochs. Its state is two numbers; any position is reached by one `plan_epoch`."""

    def __init__(self, pairs: EncodedPairs, batch_tokens: int, seed: int) -> None:
        self._pairs, self._batch_tokens, self._seed = pairs, batch_tokens, seed
        self.epoch, self.index = 0, 0
        self._plan: tuple[int, list[np.ndarray]] | None = None

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self.index >= len(self._batches_of(self.epoch)):
            self.epoch, self.index = self.epoch + 1, 0
        rows = self._batches_of(self.epoch)[self.index]
        self.index += 1
        return make_batch([self._pairs.src(i) for i in rows], [self._pairs.tgt(i) for i in rows])

    def _batches_of(self, epoch: int) -> list[np.ndarray]:
        if self._plan is None or self._plan[0] != epoch:
            plan = plan_epoch(self._pairs.src_lengths, self._pairs.tgt_lengths, self._batch_tokens, self._seed, epoch)
            self._plan = (epoch, plan)
        return self._plan[1]

    @property
    def epochs(self) -> float:
        """Epochs done, with the fraction of the present one."""
        return self.epoch + self.index / max(1, len(self._batches_of(self.epoch)))

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "index": self.index}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.index = state["epoch"], state["index"]


def validation_batches(pairs: EncodedPairs, batch_tokens: int) -> Iterator[Batch]:
    """Every pair once, in a fixed order."""
    for rows in plan_epoch(pairs.src_lengths, pairs.tgt_lengths, batch_tokens, seed=0, epoch=0):
        yield make_batch([pairs.src(i) for i in rows], [pairs.tgt(i) for i in rows])
