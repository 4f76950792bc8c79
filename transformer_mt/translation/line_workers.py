"""The work on lines in other processes, while this one searches on a GPU.

Dividing lines into sentences, encoding, decoding and judging them is Python, and takes longer than a GPU's
search. The other processes are forks: they have the translator already, and none of them touches the GPU.
They divide the lines among them, and this process searches for all of them at once.
"""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from threading import current_thread, main_thread
from typing import Any, cast

from transformer_mt.config import DecodeConfig
from transformer_mt.cpu import usable_cores
from transformer_mt.errors import UserError, WorkError
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, Ids, Request

_LEAST_LINES = 2048
"""Starting the processes takes as long as the work on this many lines."""
_MOST_WORKERS = 8
_HAS_ENDED = "a worker process has ended; translate again, using less memory"

Translate = Callable[[Engine, slice], list[Any]]
"""Translates some of the lines with this engine."""


def num_workers(engine: Engine, num_lines: int) -> int:
    """The number of processes that save time for these lines; 0 where none may be started: in a thread, as a
    server's are, in a process that may have no children, on a CPU, and where there is no CUDA.
    """
    is_alone = current_thread() is main_thread() and not multiprocessing.current_process().daemon
    if num_lines < _LEAST_LINES or not is_alone or engine.is_on_cpu or sys.platform != "linux":
        return 0
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return min(_MOST_WORKERS, usable_cores() // ranks_here - 1)


def translate_in_workers(engine: Engine, translate: Translate, num_lines: int, count: int) -> Iterator[Any]:
    """The results of `translate` for all lines, in order, computed by `count` processes that ask `engine`."""
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    share = -(-num_lines // count)
    try:
        for start in range(0, num_lines, share):
            pipe, theirs = context.Pipe()
            pipes.append(pipe)
            lines = slice(start, start + share)
            process = context.Process(
                target=_work, args=(engine, translate, lines, theirs, pipes), daemon=True
            )
            process.start()
            processes.append(process)
            theirs.close()  # so that the end of the process ends a wait for it
        results: dict[Connection, list[Any]] = {}
        asking: dict[Connection, tuple[str, Any]] = {}
        while len(results) < len(pipes):
            for ready in wait([p for p in pipes if p not in results and p not in asking]):
                pipe = cast(Connection, ready)
                what, value = _received(pipe)
                if what == "error":
                    raise value
                if what == "done":
                    results[pipe] = value
                else:
                    asking[pipe] = what, value
            if len(asking) + len(results) == len(pipes):  # together they make the largest batches
                _answer(engine, {pipe: asking[pipe] for pipe in pipes if pipe in asking})
                asking.clear()
        for pipe in pipes:
            yield from results[pipe]
    finally:
        for process in processes:
            process.kill()


def _received(pipe: Connection) -> tuple[str, Any]:
    try:
        received: tuple[str, Any] = pipe.recv()
    except (EOFError, ConnectionError):
        raise WorkError(_HAS_ENDED) from None
    return received


def _send(pipe: Connection, value: Any) -> None:
    try:
        pipe.send(value)
    except ConnectionError:
        raise WorkError(_HAS_ENDED) from None


def _answer(engine: Engine, asking: dict[Connection, tuple[str, Any]]) -> None:
    """Ask the engine what the processes ask, searches of the same settings together."""
    searches = [(pipe, value) for pipe, (what, value) in asking.items() if what == "search"]
    for pipe, (what, value) in asking.items():
        if what != "search":
            _send(pipe, getattr(engine, what)(value))
    while searches:
        settings, n_best = searches[0][1][1:]
        alike = [(pipe, value[0]) for pipe, value in searches if value[1:] == (settings, n_best)]
        searches = [search for search in searches if search[1][1:] != (settings, n_best)]
        owners = [(pipe, i) for pipe, requests in alike for i in range(len(requests))]
        results: dict[Connection, list[tuple[int, list[Hypothesis]]]] = {pipe: [] for pipe, _ in alike}
        all_requests = [request for _, requests in alike for request in requests]
        for number, hypotheses in engine.search(all_requests, settings, n_best):
            pipe, i = owners[number]
            results[pipe].append((i, hypotheses))
        for pipe, of_pipe in results.items():
            _send(pipe, of_pipe)


class _AskingEngine:
    """The engine of another process."""

    def __init__(self, engine: Engine, pipe: Connection) -> None:
        self._pipe = pipe
        self.name, self.dtype, self.is_on_cpu = engine.name, engine.dtype, engine.is_on_cpu
        self.max_positions, self.writes_phrases = engine.max_positions, engine.writes_phrases

    def check(self, settings: DecodeConfig) -> None:
        """The other process has checked them."""

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        yield from self._asked("search", (requests, settings, n_best))

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        return self._asked("token_log_probs", pairs)

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        return self._asked("cross_attention", pairs)

    def _asked(self, what: str, value: Any) -> Any:
        self._pipe.send((what, value))
        return self._pipe.recv()


def _work(
    engine: Engine, translate: Translate, lines: slice, pipe: Connection, others: Sequence[Connection]
) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # sent to a terminal's whole group of processes
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    gc.freeze()  # the parent's tensors on the GPU are not to be freed here
    for other in others:  # so that the end of the parent ends a wait for it
        other.close()
    answer: tuple[str, Any]
    try:
        answer = "done", translate(_AskingEngine(engine, pipe), lines)
    except (EOFError, ConnectionError):  # the parent has ended
        return
    except UserError as error:
        answer = "error", error
    except Exception as error:
        answer = "error", WorkError(f"a worker process failed: {error!r}")
    pipe.send(answer)
