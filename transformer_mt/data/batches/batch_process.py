"""Batches made in another process: BPE-dropout segments words in Python, and the thread that starts a GPU's
work would wait for Python's lock.
"""

import atexit
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from transformer_mt.data.batches.batch import Batch
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.processes import Fork

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
