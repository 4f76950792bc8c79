"""What the server accepts, with the defaults: sizes, waiting lines, seconds; API keys, requests a minute."""

import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.text.lines import read_lines

_CLIENTS = 10_000
"""Clients whose requests are counted at a time; those that asked longest ago are forgotten first."""


_UNLIMITED_BODY = 100_000_000
"""Bytes of a request whose characters have no limit."""


@dataclass(frozen=True)
class Limits:
    """The limits of what a server accepts."""

    characters: int = 20_000
    """Characters of the texts of one request; 0 is no limit."""
    requests_per_minute: int = 0
    """Requests of one key, or without keys of one address; 0 is no limit."""
    queue_lines: int = 2000
    """Lines that may wait for a model."""
    seconds: float = 60
    """Seconds for one request, from its last byte to its answer; 0 is no limit."""
    file_bytes: int = 10_000_000
    """Bytes of a file that is translated; 0 takes none."""
    body_seconds: float = 10.0
    """Seconds that a client has to send a request, per million bytes of the largest allowed request."""
    connections: int = 1000

    @property
    def body_bytes(self) -> int:
        """Most bytes of a request without a file. JSON and forms use at most twelve per character."""
        return max(1_000_000, 12 * self.characters + 100_000) if self.characters else _UNLIMITED_BODY


class ApiKeys:
    """The valid keys. A file has one per line, optionally followed by its requests per minute."""

    def __init__(self, keys: Sequence[tuple[str, int | None]]) -> None:
        self._keys = [(_digest(key), per_minute) for key, per_minute in keys]

    @classmethod
    def read(cls, path: Path) -> "ApiKeys":
        """InputError if a line is not a key, optionally followed by a number above 0."""
        keys: list[tuple[str, int | None]] = []
        for number, line in enumerate(read_lines(path), start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) > 2 or (len(words) == 2 and not (words[1].isdecimal() and int(words[1]))):
                raise InputError(
                    f"{path}:{number}: must be a key, with its requests per minute (1 or more) if they are "
                    "limited"
                )
            keys.append((words[0], int(words[1]) if len(words) == 2 else None))
        if not keys:
            raise InputError(f"{path}: must have a key in each line, but has none")
        return cls(keys)

    def find(self, key: str) -> tuple[str, int | None] | None:
        """The key's SHA-256, which may be stored as the client's name, and its requests per minute; None if
        it is no key. The time does not depend on which key it is.
        """
        digest, match = _digest(key), None
        for known, per_minute in self._keys:
            if hmac.compare_digest(known, digest):
                match = known.hex(), per_minute
        return match


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class RequestRate:
    """Requests of each client in the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: dict[str, deque[float]] = {}

    def seconds_to_wait(self, client: str, per_minute: int) -> float:
        """0 if the client may send a request now, which is then counted; else the seconds until it may."""
        now = self._clock()
        times = self._times.pop(client, deque())
        self._times[client] = times  # the last in order
        while len(self._times) > _CLIENTS:
            del self._times[next(iter(self._times))]
        while times and times[0] <= now - 60.0:
            times.popleft()
        if len(times) >= per_minute:
            return times[0] + 60.0 - now
        times.append(now)
        return 0.0
