"""An engine in processes of its own, one a core: in one process, Python's lock lets the torch engine use only
one, and the HTTP server waits for it, too.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from transformer_mt.errors import WorkError
from transformer_mt.translation.engines.engine import Engine, RemoteEngine
from transformer_mt.translator import Translator

_SECONDS = 0.1
"""Seconds between two looks at the processes that load a model."""
_ENGINE: list[Engine] = []
"""The engine of a worker's process."""


def resident_bytes(pid: int | str = "self") -> int:
    """Bytes of memory of a process, with its share of what it shares; 0 on systems without /proc."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:  # or the process has ended
        pass
    return 0


class EnginePool(RemoteEngine):
    """`count` processes with an engine each; a call runs in one of them. Thread-safe."""

    def __init__(self, load: Callable[[], Translator], engine: Engine, count: int) -> None:
        """`load` is called in each process; `engine` is such an engine, and is not kept."""
        super().__init__(engine)
        self._load, self._count = load, count
        self._lock = threading.Lock()
        self._processes: list[Any] = []
        self._pool = self._start()

    def memory(self) -> int:
        """Bytes of all processes."""
        return sum(resident_bytes(process.pid) for process in list(self._processes))

    def close(self) -> None:
        self._pool.shutdown()

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer of a process. If it dies, all are started again, and it is retried once."""
        pool = self._pool
        try:
            return pool.submit(_call, method, *arguments).result()
        except BrokenProcessPool:
            with self._lock:
                if self._pool is pool:
                    self._end_processes()
                    self._pool = self._start()
            return self._pool.submit(_call, method, *arguments).result()

    def _end_processes(self) -> None:
        """The others of a pool that lost one ignore SIGTERM, which is all it sends them."""
        for process in self._processes:
            process.kill()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        all_loaded = context.Barrier(self._count)
        pool = ProcessPoolExecutor(
            self._count, context, initializer=_begin, initargs=(self._load, all_loaded)
        )
        # As many tasks, so that all are started now, from the files that are there now.
        tasks = [pool.submit(_call, "token_log_probs", []) for _ in range(self._count)]
        self._processes = list(pool._processes.values())
        # The pool does not see that the process it started last has died, and the others wait for that one.
        while wait(tasks, timeout=_SECONDS).not_done:
            if not all(process.is_alive() for process in self._processes):
                self._end_processes()
        try:
            for task in tasks:
                task.result()
        except BrokenProcessPool:
            self._end_processes()
            raise WorkError(
                f"a server process ended while loading the model; is there memory for {self._count} of them?"
            ) from None
        return pool


def _begin(load: Callable[[], Translator], all_loaded: Barrier) -> None:
    """Load the model in this process, and wait until all have. It ends with its parent, and not by a signal
    to the whole group.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    translator = load()
    translator.translate(["1 a", "2 b"])  # what is done once is done before the first request
    _ENGINE[:] = [translator.engine]
    all_loaded.wait()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _call(name: str, *arguments: Any) -> list[Any]:
    return list(getattr(_ENGINE[0], name)(*arguments))
