"""Batches made in another process: BPE-dropout segments words in Python, and the thread that starts a GPU's
work would wait for Python's lock.
"""

import atexit
import gc
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from torch import Tensor

from transformer_mt.data.batches.batching import Batch, TrainingBatches
from transformer_mt.errors import WorkError

Made = tuple[list[Batch], dict[str, int], float]
"""The batches of an update, the state of the TrainingBatches after it, and the epochs done."""


class BatchProcess:
    """A fork of this process that makes the batches of one update after the other, one ahead."""

    def __init__(self, batches: TrainingBatches, accumulate: int) -> None:
        batches.settle()  # in the fork no thread would end what one of this process has begun
        context = multiprocessing.get_context("fork")
        self._receiver, sender = context.Pipe(duplex=False)
        arguments = batches, accumulate, sender, self._receiver
        self._process = context.Process(target=_make, args=arguments, daemon=True)
        self._process.start()
        atexit.register(self.close)  # before multiprocessing waits for it
        sender.close()  # so that the end of the process ends a wait for it

    def next_update(self) -> Made:
        """WorkError if the process has ended."""
        try:
            made: Made = self._receiver.recv()
        except (EOFError, OSError):
            self._process.join(1.0)
            raise WorkError(
                f"the process that makes batches has ended with status {self._process.exitcode}; run the "
                "same command to resume"
            ) from None
        batches, state, epochs = made
        return [batch.each(torch.from_numpy) for batch in batches], state, epochs

    def close(self) -> None:
        atexit.unregister(self.close)
        self._process.kill()
        self._process.join()


def _make(batches: TrainingBatches, accumulate: int, sender: Connection, receiver: Connection) -> None:
    gc.freeze()  # the parent's tensors on the GPU are not to be freed here
    receiver.close()  # so that the end of the parent ends a wait for it
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):  # sent to a terminal's whole group of processes
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    torch.set_num_threads(1)  # those of the parent are not here
    as_array: Callable[[Tensor], Tensor] = Tensor.numpy  # type: ignore[assignment]
    try:
        while True:
            made = [batch.each(as_array) for batch in batches.next_update(accumulate)]
            sender.send((made, batches.state_dict(), batches.epochs))
    except BrokenPipeError:  # the parent has ended
        os._exit(0)
