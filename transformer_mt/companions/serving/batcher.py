"""Translates many requests, each in a thread of its own, and searches their segments together."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from transformer_mt.companions.serving.segment_queue import EnginePool, QueuedEngine, SegmentQueue
from transformer_mt.parts import load_part
from transformer_mt.processes import usable_cores
from transformer_mt.translation.engines.engine import Engine
from transformer_mt.translation.result import Translation
from transformer_mt.translator import Translator

_REQUESTS = 256
"""Requests whose texts are divided and put together at the same time; they mostly wait for the search."""

Protect = Sequence[str | None] | None
"""A regular expression for each line, or None; what it matches passes unchanged. If there is no sequence,
only what usually passes unchanged does so.
"""


@dataclass(frozen=True)
class RequestOptions:
    """The options of a request for all its translations."""

    protect_usual: bool | None = None
    """Whether addresses and the like pass unchanged; None is as the model's config says."""
    terms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Terms in addition to those of the server's glossary."""


NO_REQUEST_OPTIONS = RequestOptions()


class QueueFullError(Exception):
    """Too many lines are waiting."""


class Batcher:
    """A translator whose batches hold segments of several requests.

    Segments that arrive while batches are searched form the next batches; the first request after a pause
    waits a few milliseconds for others. The threads share the segments, because on a CPU two batches on two
    cores are faster than one batch on both.
    """

    def __init__(
        self,
        translator: Translator,
        engine: Engine | None = None,
        wait: float = 0.002,
        queue_lines: int = 2000,
        threads: int = 1,
    ) -> None:
        """`engine` searches in place of the translator's own. `wait` is the number of seconds to wait for one
        more request. `queue_lines` is the maximum number of lines that may be waiting or in work.
        """
        self._queue = SegmentQueue(engine or translator.engine, threads, wait)
        self._processes = engine if isinstance(engine, EnginePool) else None
        self.translator = translator.with_engine(self._queue.engine)
        self.queue_lines = queue_lines
        self.lines = 0
        """Lines of requests that are not answered yet."""
        self.translated = 0
        """Lines of answered requests."""
        self._pool = ThreadPoolExecutor(_REQUESTS, thread_name_prefix="request")

    async def translate(
        self,
        lines: Sequence[str],
        n_best: int = 1,
        *,
        align: bool = False,
        protect: Protect = None,
        request_options: RequestOptions = NO_REQUEST_OPTIONS,
    ) -> list[Translation]:
        """Returns one Translation per line. `n_best`, `align` and `protect` are as in Options. QueueFullError
        if too many lines are waiting. A cancelled call leaves the queue.
        """
        if not lines:
            return []
        if self.lines and self.lines + len(lines) > self.queue_lines:
            raise QueueFullError
        engine = QueuedEngine(self._queue)
        translator = self.translator.with_engine(engine)
        if request_options.protect_usual is not None:
            translator = translator.with_settings(protect_usual=request_options.protect_usual)

        def work() -> list[Translation]:
            chosen = translator
            if request_options.terms:
                languages = chosen.source_lang, chosen.target_lang
                behind = chosen.resources.by_name.get("glossary")
                glossary = load_part("resource", "glossary")
                chosen = chosen.with_resources(
                    glossary=glossary.of_request(request_options.terms, languages, behind)
                )
            return chosen.translate(lines, n_best, align=align, protect=protect)

        self.lines += len(lines)
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._pool, work)
            self.translated += len(lines)
            return results
        finally:
            self.lines -= len(lines)
            engine.give_up()

    def close(self) -> None:
        """Finish what waits, then end the threads and the engine's processes."""
        self._pool.shutdown()
        self._queue.close()
        if self._processes is not None:
            self._processes.close()

    def memory(self) -> int:
        """Bytes that the engine's own processes hold."""
        return self._processes.memory() if self._processes is not None else 0


def start_batcher(
    load: Callable[[], Translator], equip: Callable[[Translator], Translator], queue_lines: int
) -> Batcher:
    """Start the batcher of a model, with one thread per worker. `load` returns a translator; it is called
    here and in each process of an EnginePool. `equip` adds, only here, what the search does not need.
    """
    translator = equip(load())
    engine = translator.engine
    threads = usable_cores() if engine.is_on_cpu else 1
    if engine.name == "torch" and threads > 1:
        engine = EnginePool(load, engine, threads)
    else:
        translator.translate(["1 a", "2 b"])  # what is done once is done before the first request
    return Batcher(translator, engine, queue_lines=queue_lines, threads=threads)
