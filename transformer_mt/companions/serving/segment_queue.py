"""Searches the segments of many requests together in a few threads; none waits for much longer ones.

An engine may run in processes of its own, one per core. In a single process, Python's lock would limit the
torch engine to one core and make the HTTP server wait for it.
"""

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.errors import WorkError
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, RemoteEngine, Request
from transformer_mt.translator import Translator

BATCH_SEGMENTS = 64
"""Most segments taken from the queue at once."""
_LONGEST_WAITS = 5
_HEAVY = 400
"""A request with more pieces is heavy: the light ones go first."""
_HEAVY_SEGMENTS = 1
"""Most segments of heavy requests searched together while there are light ones."""
_HEAVY_SHARE = 1 / 4
"""Seconds for heavy requests for each second for light ones."""
_PAUSE = 1.0
"""Seconds without a light request after which heavy ones get the whole engine."""
_PAIRS = 32
"""Pairs that are scored or aligned at once."""


class GivenUpError(Exception):
    """Nobody waits for the translation any more."""


@dataclass(eq=False)
class _Task:
    """A segment to search, or pairs to score or align: they run alone."""

    engine: "QueuedEngine"
    index: int
    size: int
    """Number of pieces of the source."""
    done: "SimpleQueue[tuple[int, Any] | Exception | None]"
    request: Request | None = None
    settings: DecodeConfig | None = None
    n_best: int = 1
    run: Callable[[], Any] | None = None


class SegmentQueue:
    """The segments that wait for an engine. A batch takes one segment of each request in turn. While light
    requests wait, heavy ones get a quarter of their time.
    """

    def __init__(self, engine: Engine, threads: int = 1, wait: float = 0.002) -> None:
        """`wait` is how many seconds the first request after a pause waits for another one."""
        self.engine = engine
        self._wait = wait
        self._waiting: list[QueuedEngine] = []
        """The requests with tasks that wait."""
        self._changed = threading.Condition()
        self._is_closed = False
        self._in_work = 0
        self._heavy_in_work = 0
        self._heavy_credit = 0.0
        """Seconds that heavy requests may use now."""
        self._is_heavy_turn = False
        """Whether light requests had a batch since the last one of heavy requests."""
        self._last_light = -_PAUSE
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """Segments that wait."""
        return sum(len(request.tasks) for request in list(self._waiting))

    def close(self) -> None:
        """Finish what waits, then end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def add(self, request: "QueuedEngine", tasks: Sequence[_Task]) -> None:
        with self._changed:
            if request.is_given_up:
                raise GivenUpError
            if not request.tasks:
                self._waiting.append(request)
            request.tasks.extend(tasks)
            request.size += sum(task.size for task in tasks if task.run is None)
            self._changed.notify()

    def drop(self, request: "QueuedEngine") -> None:
        """Nobody waits for its tasks any more."""
        with self._changed:
            request.is_given_up = True
            for task in request.tasks:
                task.done.put(None)
            request.tasks.clear()
            if request in self._waiting:
                self._waiting.remove(request)

    def _work(self) -> None:
        while True:
            with self._changed:
                batch = self._next()
                if batch is None:
                    return
                is_heavy = all(task.engine.is_heavy for task in batch)
                self._in_work += len(batch)
                self._heavy_in_work += is_heavy
            begun = time.monotonic()
            for group in _of_like_size(batch):
                self._run(group)
            with self._changed:
                self._in_work -= len(batch)
                self._heavy_in_work -= is_heavy
                self._record_duration(is_heavy, time.monotonic() - begun)
                self._changed.notify()

    def _record_duration(self, is_heavy: bool, seconds: float) -> None:
        """Update the time that heavy requests may use: a heavy batch uses it up, a light one adds to it."""
        if is_heavy:
            is_alone = time.monotonic() - self._last_light >= _PAUSE
            self._heavy_credit = 0.0 if is_alone else self._heavy_credit - seconds
            return
        self._last_light = time.monotonic()
        if any(request.is_heavy for request in self._waiting):
            self._heavy_credit = min(self._heavy_credit + seconds * _HEAVY_SHARE, _PAUSE)

    def _next(self) -> list[_Task] | None:
        """The tasks of the next batch, as soon as there are any; None at the end."""
        while True:
            if not self._waiting:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return None
                self._wait_for_others()
            elif batch := self._take():
                if self._waiting:
                    self._changed.notify()
                return batch
            else:
                self._changed.wait(0.01)  # heavy requests, which may use no time now

    def _wait_for_others(self) -> None:
        """Waits as long as requests come one after the other."""
        end = time.monotonic() + _LONGEST_WAITS * self._wait
        while self.waiting < BATCH_SEGMENTS and time.monotonic() < end:
            if not self._changed.wait(self._wait):
                return

    def _take(self) -> list[_Task]:
        """The next batch: at most this thread's share of all that is in work or waits. While light requests
        wait, heavy ones get their share of the time. Until no light request has come for `_PAUSE` seconds,
        heavy ones also leave one thread free, if there are several.
        """
        light = [request for request in self._waiting if not request.is_heavy]
        heavy = [request for request in self._waiting if request.is_heavy]
        threads = max(1, len(self._threads) - self._heavy_in_work)
        most = min(BATCH_SEGMENTS, -(-(self.waiting + self._in_work - self._heavy_in_work) // threads))
        is_alone = not light and time.monotonic() - self._last_light >= _PAUSE
        if is_alone:
            return self._take_from(heavy, most)
        has_turn = not light or (self._is_heavy_turn and self._heavy_credit > 0)
        if heavy and has_turn and self._heavy_in_work < max(1, len(self._threads) - 1):
            self._is_heavy_turn = False
            return self._take_from(heavy, _HEAVY_SEGMENTS)
        self._is_heavy_turn = True
        return self._take_from(light, most)

    def _take_from(self, requests: Sequence["QueuedEngine"], most: int) -> list[_Task]:
        """One task of each request in turn. A request goes to the end of the line when a task is taken."""
        batch: list[_Task] = []
        in_turn = deque(requests)
        while in_turn and len(batch) < most:
            request = in_turn.popleft()
            task = request.tasks[0]
            if batch and (task.run or batch[0].run or task.settings != batch[0].settings):
                continue  # in another batch
            batch.append(request.tasks.popleft())
            self._waiting.remove(request)
            if request.tasks:
                in_turn.append(request)
                self._waiting.append(request)
        return batch

    def _run(self, group: Sequence[_Task]) -> None:
        for task in group:
            if task.engine.is_given_up:
                task.done.put(None)  # its thread still waits for it
        group = [task for task in group if not task.engine.is_given_up]
        if not group:
            return
        first = group[0]
        try:
            if first.run is not None:
                results: list[Any] = [first.run()]
            else:
                assert first.settings is not None
                requests = [task.request for task in group if task.request is not None]
                hypotheses = dict(self.engine.search(requests, first.settings, max(t.n_best for t in group)))
                results = [hypotheses[i][: task.n_best] for i, task in enumerate(group)]
        except Exception as error:
            if len(group) == 1:
                first.done.put(error)
                return
            for task in group:  # one segment's error must not be that of the others
                self._run([task])
            return
        for task, result in zip(group, results):
            task.done.put((task.index, result))


class QueuedEngine(RemoteEngine):
    """The engine of one request: what it is asked for waits in the queue."""

    def __init__(self, segments: SegmentQueue) -> None:
        super().__init__(segments.engine)
        self.segments = segments
        self.tasks: deque[_Task] = deque()
        self.size = 0
        """Number of source tokens of this request that were put into the queue."""
        self.is_given_up = False

    @property
    def is_heavy(self) -> bool:
        return self.size > _HEAVY

    def check(self, settings: DecodeConfig) -> None:
        self.segments.engine.check(settings)

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        done: SimpleQueue[Any] = SimpleQueue()
        tasks = [
            _Task(self, i, len(request.src) + 1, done, request, settings, n_best)
            for i, request in enumerate(requests)
        ]
        return self._results(tasks, done)

    def give_up(self) -> None:
        """Nobody waits for a result any more."""
        self.segments.drop(self)

    def ask(self, method: str, *arguments: Any) -> Any:
        """The results of a method of the engine for pairs, in order; parts of them are tasks."""
        compute, (pairs,) = getattr(self.segments.engine, method), arguments
        done: SimpleQueue[Any] = SimpleQueue()
        parts = [pairs[start : start + _PAIRS] for start in range(0, len(pairs), _PAIRS)]
        tasks = [
            _Task(self, i, sum(len(src) for src, _ in part), done, run=partial(compute, part))
            for i, part in enumerate(parts)
        ]
        results = dict(self._results(tasks, done))
        return [result for i in range(len(parts)) for result in results[i]]

    def _results(self, tasks: Sequence[_Task], done: "SimpleQueue[Any]") -> Iterator[tuple[int, Any]]:
        """The results as they come. GivenUpError after `give_up`."""
        if not tasks:
            return
        self.segments.add(self, tasks)
        for _ in tasks:
            result = done.get()
            if result is None or self.is_given_up:
                raise GivenUpError
            if isinstance(result, Exception):
                self.give_up()
                raise result
            yield result


def _of_like_size(batch: Sequence[_Task]) -> Iterator[list[_Task]]:
    """Groups of tasks of similar size, the shortest first: a much longer task would delay the others."""
    group: list[_Task] = []
    for task in sorted(batch, key=lambda task: task.size):
        if group and task.size > 3 * group[0].size + 20:
            yield group
            group = []
        group.append(task)
    yield group


_SECONDS = 0.1
"""Seconds between two looks at the processes that load a model."""
_ENGINE: list[Engine] = []
"""The engine of a worker's process."""


def resident_bytes(pid: int | str = "self") -> int:
    """Bytes of memory of a process, with its part of the shared memory; 0 on systems without /proc."""
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
        """`load` is called in each process. `engine` is an engine of the same kind; it is not kept."""
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
        """Kill all processes. A pool that lost one sends the others only SIGTERM, which they ignore."""
        for process in self._processes:
            process.kill()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        all_loaded = context.Barrier(self._count)
        pool = ProcessPoolExecutor(
            self._count, context, initializer=_begin, initargs=(self._load, all_loaded)
        )
        # One task per process, so that all processes start now and load the files as they are now.
        tasks = [pool.submit(_call, "token_log_probs", []) for _ in range(self._count)]
        self._processes = list(pool._processes.values())
        # The pool does not notice if the process it started last dies; the others would wait for it.
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
    """Load the model in this process, and wait until all processes have. The process ends with its parent;
    it ignores SIGINT and SIGTERM, which may go to the whole group.
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
