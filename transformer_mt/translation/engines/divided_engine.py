"""Divides the search of an engine among ranks, and the other work on lines among worker processes.

Dividing lines into sentences, encoding, decoding and judging them is Python code that takes longer than the
search on a GPU. The worker processes are forks, so they already have the translator; none of them touches the
GPU. Each works on a share of the lines, and this process searches for all of them at once.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection, wait
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, cast

from transformer_mt.config import DecodeConfig
from transformer_mt.processes import Fork, may_fork, usable_cores
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, RemoteEngine, Request

if TYPE_CHECKING:
    from transformer_mt.ranks import Ranks


class DividedEngine(RemoteEngine):
    """The engines of all ranks, used by rank 0 as one. The other ranks `follow` until it calls `let_go`."""

    def __init__(self, engine: Engine, ranks: "Ranks") -> None:
        super().__init__(engine)
        self._engine, self._ranks = engine, ranks

    def check(self, settings: DecodeConfig) -> None:
        self._engine.check(settings)

    def ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self._engine, method)(*arguments)

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        task: list[Any] = [
            [asdict(request) for request in requests],
            settings.model_dump(mode="json"),
            n_best,
        ]
        self._ranks.broadcast(task)
        for share in self._search_share(*task):
            for i, hypotheses in share:
                yield i, [Hypothesis(**hypothesis) for hypothesis in hypotheses]

    def follow(self) -> None:
        """Search for rank 0."""
        while (task := self._ranks.broadcast(None)) is not None:
            self._search_share(*task)

    def let_go(self) -> None:
        self._ranks.broadcast(None)

    def _search_share(self, requests: list[Any], settings: dict[str, Any], n_best: int) -> list[Any]:
        """Search this rank's share of the requests. Returns the results of all ranks."""
        by_length = sorted(range(len(requests)), key=lambda i: -len(requests[i]["src"]))
        numbers = by_length[self._ranks.rank :: self._ranks.size]
        of_rank = [Request(**requests[i]) for i in numbers]
        hypotheses = (
            self._engine.search(of_rank, DecodeConfig.model_validate(settings), n_best) if of_rank else ()
        )
        return self._ranks.gather([(numbers[i], [asdict(one) for one in best]) for i, best in hypotheses])


_LEAST_LINES = 2048
"""Starting the processes takes as long as the work on this many lines."""
_MOST_WORKERS = 8

Translate = Callable[[Engine, slice], list[Any]]
"""Translates some of the lines with this engine."""


def num_workers(engine: Engine, num_lines: int) -> int:
    """The number of processes that save time for these lines. It is 0 if none may be started: on a CPU, where
    there is no CUDA, in a thread (as in a server), and in a process that may have no children.
    """
    is_alone = current_thread() is main_thread() and may_fork()
    if num_lines < _LEAST_LINES or not is_alone or engine.is_on_cpu:
        return 0
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return min(_MOST_WORKERS, usable_cores() // ranks_here - 1)


def translate_in_workers(engine: Engine, translate: Translate, num_lines: int, count: int) -> Iterator[Any]:
    """The results of `translate` for all lines, in order, computed by `count` processes that ask `engine`."""
    forks: list[Fork] = []
    share = -(-num_lines // count)

    def work(lines: slice, pipe: Connection) -> tuple[str, Any]:
        return "done", translate(_AskingEngine(engine, pipe), lines)

    try:
        for start in range(0, num_lines, share):
            forks.append(Fork(partial(work, slice(start, start + share)), forks))
        results: dict[Connection, list[Any]] = {}
        asking: dict[Connection, tuple[Fork, str, Any]] = {}
        while len(results) < len(forks):
            waiting = {fork.pipe: fork for fork in forks if fork.pipe not in (*results, *asking)}
            for ready in wait(list(waiting)):
                pipe = cast(Connection, ready)
                what, value = waiting[pipe].receive()
                if what == "done":
                    results[pipe] = value
                else:
                    asking[pipe] = waiting[pipe], what, value
            if len(asking) + len(results) == len(forks):  # all have asked: answer in the largest batches
                _answer(engine, [asking[fork.pipe] for fork in forks if fork.pipe in asking])
                asking.clear()
        for fork in forks:
            yield from results[fork.pipe]
    finally:
        for fork in forks:
            fork.kill()


def _answer(engine: Engine, asking: Sequence[tuple[Fork, str, Any]]) -> None:
    """Answer the requests of the processes; searches with the same settings are done together."""
    searches = [(fork, value) for fork, what, value in asking if what == "search"]
    for fork, what, value in asking:
        if what != "search":
            fork.send(getattr(engine, what)(*value))
    while searches:
        settings, n_best = searches[0][1][1:]
        alike = [(fork, value[0]) for fork, value in searches if value[1:] == (settings, n_best)]
        searches = [search for search in searches if search[1][1:] != (settings, n_best)]
        owners = [(number, i) for number, (_, requests) in enumerate(alike) for i in range(len(requests))]
        results: list[list[tuple[int, list[Hypothesis]]]] = [[] for _ in alike]
        all_requests = [request for _, requests in alike for request in requests]
        for number, hypotheses in engine.search(all_requests, settings, n_best):
            owner, i = owners[number]
            results[owner].append((i, hypotheses))
        for (fork, _), of_fork in zip(alike, results):
            fork.send(of_fork)


class _AskingEngine(RemoteEngine):
    """The engine in a worker process: it sends each request to the process that forked it."""

    def __init__(self, engine: Engine, pipe: Connection) -> None:
        super().__init__(engine)
        self._pipe = pipe

    def ask(self, method: str, *arguments: Any) -> Any:
        self._pipe.send((method, arguments))
        return self._pipe.recv()
