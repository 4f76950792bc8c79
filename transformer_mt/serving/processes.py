"""A translator in processes of their own, one a core: in one process, Python's lock lets the torch engine use
only one, and the HTTP server waits for it, too.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from transformer_mt.config import DecodeConfig
from transformer_mt.errors import WorkError
from transformer_mt.serving.batcher import Protect
from transformer_mt.translation.result import Translation
from transformer_mt.translation.translator import Translator

_TRANSLATOR: list[Translator] = []
"""The translator of a worker's process."""


class TranslatorPool:
    """`count` processes with a translator each; a call runs in one of them. Thread-safe."""

    def __init__(self, load: Callable[[], Translator], decode: DecodeConfig, count: int) -> None:
        """`load` is called in each process; `decode` are the settings of its search."""
        self.decode = decode
        self._load, self._count = load, count
        self._lock = threading.Lock()
        self._pool = self._start()

    def translate(
        self, lines: Sequence[str], n_best: int = 1, *, align: bool = False, protect: Protect = None
    ) -> list[Translation]:
        """As Translator.translate. If its process dies, all are started again, and it is retried once."""
        pool = self._pool
        asked = list(lines), n_best, align, protect
        try:
            return pool.submit(_translate, *asked).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    self._pool = self._start()
            return self._pool.submit(_translate, *asked).result()

    def close(self) -> None:
        self._pool.shutdown()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._count, context, initializer=_begin, initargs=(self._load,))
        # One task each, so that all are started now.
        try:
            list(pool.map(_translate, [["1"]] * self._count))
        except BrokenProcessPool:
            raise WorkError(
                f"a process of the server ended while it loaded the model; is there memory for {self._count} "
                "of them?"
            ) from None
        return pool


def _begin(load: Callable[[], Translator]) -> None:
    """Load the model in this process; it ends with its parent, and not by a signal to the whole group."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    _TRANSLATOR[:] = [load()]


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _translate(
    lines: list[str], n_best: int = 1, align: bool = False, protect: Protect = None
) -> list[Translation]:
    return _TRANSLATOR[0].translate(lines, n_best=n_best, align=align, protect=protect)
