"""Lines of many requests translated together, by a few threads per model."""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from transformer_mt.config import DecodeConfig
from transformer_mt.translation.result import Translation

BATCH_LINES = 64
"""Most lines taken from the queue at once."""
_LONGEST_WAITS = 5


Protect = Sequence[str | None] | None
"""For each line a regular expression: what it matches stays. None for all lines: nothing is protected."""


class TranslatorLike(Protocol):
    """A translator, here or in other processes."""

    decode: DecodeConfig

    def translate(
        self, lines: Sequence[str], n_best: int = 1, *, align: bool = False, protect: Protect = None
    ) -> list[Translation]: ...


class QueueFullError(Exception):
    """More lines wait than may wait."""


@dataclass(eq=False)
class _Request:
    """The lines of one request, and what is known of their translations."""

    lines: Sequence[str]
    n_best: int
    align: bool
    protect: Protect
    future: "asyncio.Future[list[Translation]]"
    loop: asyncio.AbstractEventLoop
    taken: int = 0
    """Lines that were taken from the queue."""
    results: dict[int, Translation] = field(default_factory=dict)

    def finish(self, error: Exception | None = None) -> None:
        """Called in the thread: hand over the results, or why there are none."""

        def hand_over() -> None:
            if self.future.done():  # cancelled
                return
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result([self.results[i] for i in range(len(self.lines))])

        with contextlib.suppress(RuntimeError):  # the loop is closed: the server has ended, nobody waits
            self.loop.call_soon_threadsafe(hand_over)


_Line = tuple[_Request, int]


class Batcher:
    """A translator whose batches hold lines of several requests.

    A batch takes one line of each waiting request in turn, so that a long text does not hold up short ones.
    What waits while batches are translated makes up the next ones; the first request after a pause waits a
    few milliseconds for others. The threads share the lines: on a CPU two batches on two cores are faster
    than one batch on both.
    """

    def __init__(
        self, translator: TranslatorLike, wait: float = 0.002, queue_lines: int = 2000, threads: int = 1
    ) -> None:
        """`wait` in seconds, for one more request; `queue_lines` is the most lines that may wait."""
        self.translator = translator
        self._wait, self.queue_lines = wait, queue_lines
        self._waiting: deque[_Request] = deque()
        self._lines_waiting = 0
        self._changed = threading.Condition()
        self._is_closed = False
        self._lines_in_work = 0
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    async def translate(
        self, lines: Sequence[str], n_best: int = 1, *, align: bool = False, protect: Protect = None
    ) -> list[Translation]:
        """One Translation per line. QueueFullError if too many wait; a cancelled call leaves the queue."""
        if not lines:
            return []
        loop = asyncio.get_running_loop()
        request = _Request(lines, n_best, align, protect, loop.create_future(), loop)
        with self._changed:
            if self._lines_waiting and self._lines_waiting + len(lines) > self.queue_lines:
                raise QueueFullError
            self._waiting.append(request)
            self._lines_waiting += len(lines)
            self._changed.notify()
        try:
            return await request.future
        finally:
            self._drop(request)

    def close(self) -> None:
        """Finish what waits, then end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def lines_waiting(self) -> int:
        return self._lines_waiting

    def _drop(self, request: _Request) -> None:
        """Nobody waits for the rest of its lines."""
        with self._changed:
            if request in self._waiting:
                self._waiting.remove(request)
                self._lines_waiting -= len(request.lines) - request.taken

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._changed.wait_for(lambda: self._waiting or self._is_closed)
                    if not self._waiting:
                        return
                    self._wait_for_others()
                batch = self._take()
                self._lines_in_work += len(batch)
            for group in _of_like_length(batch):
                self._translate(group)
            with self._changed:
                self._lines_in_work -= len(batch)

    def _wait_for_others(self) -> None:
        """Waits as long as lines come one after the other."""
        end = time.monotonic() + _LONGEST_WAITS * self._wait
        while self._lines_waiting < BATCH_LINES and time.monotonic() < end:
            if not self._changed.wait(self._wait):
                return

    def _take(self) -> list[_Line]:
        """One line of each request in turn: at most this thread's share of all that are in work or wait."""
        share = -(-(self._lines_waiting + self._lines_in_work) // len(self._threads))
        most = min(BATCH_LINES, share)
        batch: list[_Line] = []
        while self._waiting and len(batch) < most:
            request = self._waiting.popleft()
            batch.append((request, request.taken))
            request.taken += 1
            if request.taken < len(request.lines):
                self._waiting.append(request)
        self._lines_waiting -= len(batch)
        if self._waiting:
            self._changed.notify()
        return batch

    def _translate(self, group: Sequence[_Line]) -> None:
        group = [(request, i) for request, i in group if not request.future.done()]
        if not group:
            return
        n_best = max(request.n_best for request, _ in group)
        try:
            found = self.translator.translate(
                [request.lines[i] for request, i in group],
                n_best=n_best,
                align=any(request.align for request, _ in group),
                protect=[request.protect[i] if request.protect else None for request, i in group],
            )
        except Exception as error:
            if len(group) == 1:
                group[0][0].finish(error)
                return
            for line in group:  # one line's error must not be that of the others
                self._translate([line])
            return
        for (request, i), translation in zip(group, found):
            asked_for = replace(translation, n_best=translation.n_best[: request.n_best])
            with self._changed:  # two threads may have lines of one request
                request.results[i] = asked_for
                is_done = len(request.results) == len(request.lines)
            if is_done:
                request.finish()


def _of_like_length(batch: Sequence[_Line]) -> Iterator[list[_Line]]:
    """The shortest lines first, apart from much longer ones: those would hold up their answers."""
    group: list[_Line] = []
    shortest = 0
    for line in sorted(batch, key=lambda line: len(line[0].lines[line[1]])):
        length = len(line[0].lines[line[1]])
        if group and length > 3 * shortest + 200:
            yield group
            group = []
        if not group:
            shortest = length
        group.append(line)
    yield group
