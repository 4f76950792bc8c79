"""Batches made before the update that needs them."""

from concurrent.futures import Future, ThreadPoolExecutor

import torch

from transformer_mt.data.batches.batch import Batch
from transformer_mt.data.batches.batch_process import BatchProcess, Made
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.packing import RowShape


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
        """That of packed batches; None where they are padded."""
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
