"""A model that is served in one direction. It is in memory while it is used, and for some time after."""

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from transformer_mt.companions.serving.batcher import Batcher
from transformer_mt.companions.serving.engine_pool import resident_bytes

_LOADER = ThreadPoolExecutor(1, thread_name_prefix="load")
"""The thread that loads models, one after the other: requests of other models need none of it."""
_PAUSE = 10.0
"""Seconds from a load that failed to the next try."""


class ModelGoneError(Exception):
    """The model is not served any more."""


class NotLoadedError(Exception):
    """The model could not be loaded."""


class Model:
    """A batcher that is started when a request needs it. Thread-safe."""

    def __init__(
        self, start: Callable[[], Batcher], name: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`start` loads the model, which people know by its `name`."""
        self.name = name
        self._start, self._clock = start, clock
        self._batcher: Batcher | None = None
        self._loading, self._state = threading.Lock(), threading.Lock()  # held long, and for an instant
        self._users, self._last_used, self._is_gone = 0, clock(), False
        self._grown, self._translated = 0, 0
        self._load: asyncio.Future[None] | None = None
        self._failure: NotLoadedError | None = None
        self._next_try = 0.0

    @asynccontextmanager
    async def loaded(self) -> AsyncIterator[Batcher]:
        """The batcher, which stays as long as it is used here. ModelGoneError after `close`; NotLoadedError
        if it cannot be loaded.
        """
        while (batcher := self._taken()) is None:
            if self._load is None or self._load.done():
                self._load = asyncio.get_running_loop().run_in_executor(_LOADER, self.load)
                # Or Python would complain of an error that nobody waits for any more
                self._load.add_done_callback(lambda load: load.exception())
            await asyncio.shield(self._load)  # others wait for it, too
        try:
            yield batcher
        finally:
            with self._state:
                self._users, self._last_used = self._users - 1, self._clock()

    def _taken(self) -> Batcher | None:
        with self._state:
            self._users += self._batcher is not None
            return self._batcher

    def load(self) -> None:
        """Load it now if it is not in memory. What fails is not tried again at once."""
        with self._loading:
            if self._is_gone:
                raise ModelGoneError
            if self._batcher is None:
                if self._failure is not None and self._clock() < self._next_try:
                    raise self._failure
                before = resident_bytes()
                try:
                    batcher = self._start()
                except Exception as error:
                    self._failure = NotLoadedError(f"{self.name}: {error}")
                    self._next_try = self._clock() + _PAUSE
                    raise self._failure from error
                # A later load may be given memory that an earlier one freed
                self._grown = max(self._grown, resident_bytes() - before)
                with self._state:
                    self._batcher, self._last_used = batcher, self._clock()

    def unload(self, after: float = 0.0) -> bool:
        """Free its memory if it was not used for `after` seconds. Returns True if it is not loaded now."""
        with self._loading:
            with self._state:
                if self._users or self._clock() - self._last_used < after:
                    return self._batcher is None
                batcher, self._batcher = self._batcher, None
            if batcher is not None:
                self._translated += batcher.translated
                batcher.close()
                del batcher
                gc.collect()  # in a thread of its own, where no request waits for it
        return True

    def close(self) -> bool:
        """Unload it for good once it is not used. Returns True if that is done."""
        self._is_gone = True
        return self.unload()

    @property
    def is_loaded(self) -> bool:
        return self._batcher is not None

    @property
    def lines(self) -> int:
        """Lines of requests that are not answered."""
        return batcher.lines if (batcher := self._batcher) else 0

    @property
    def translated(self) -> int:
        """Lines of requests that were answered."""
        return self._translated + (batcher.translated if (batcher := self._batcher) else 0)

    @property
    def memory(self) -> int | None:
        """Bytes: those that this process grew by when it was loaded, and those of processes of its own. None
        while it is not in memory, 0 where the system does not say.
        """
        return self._grown + batcher.memory() if (batcher := self._batcher) else None
