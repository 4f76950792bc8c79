"""Number of lines that are translated together."""

import time

_LEAST, _MOST = 1024, 16_384
_SECONDS = 10.0


class ChunkSize:
    """The number of lines of the next chunk; `next` is called when the one before is done.

    Lines of a chunk are sorted by length into batches, and at its end cores wait for each other. So it grows
    while chunks take less than ten seconds. It stays small on slow machines, because results are written in
    order: what a killed process loses is at most the work on one chunk.
    """

    def __init__(self) -> None:
        self._lines, self._since = _LEAST, float("-inf")

    def next(self) -> int:
        now = time.monotonic()
        if now - self._since < _SECONDS:
            self._lines = min(2 * self._lines, _MOST)
        self._since = now
        return self._lines
