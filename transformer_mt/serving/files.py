"""Translated files that wait to be fetched."""

import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

_SECONDS = 1800.0
"""A file can be fetched for half an hour."""
_MOST, _MOST_BYTES = 1000, 1_000_000_000
_NAME_BYTES = 150
_NO_NAME = re.compile(r"[^\w. -]+")


class TranslatedFiles:
    """Files by names that nobody can guess, in a folder that ends with the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folder = TemporaryDirectory(prefix="transformer_mt-files-")
        self._times: dict[str, float] = {}
        self._sizes: dict[str, int] = {}

    def add(self, content: bytes, name: str, target: str) -> str:
        """Keep the translation of a file of this name; gives back the name that it is fetched by."""
        path = PurePath(name.replace("\\", "/"))
        stem = (
            _NO_NAME.sub("_", path.stem).encode()[:_NAME_BYTES].decode(errors="ignore").strip(". ") or "file"
        )
        own = f"{secrets.token_urlsafe(16)}.{stem}_{target}{_NO_NAME.sub('', path.suffix)}"
        self._forget()
        (Path(self._folder.name) / own).write_bytes(content)
        self._times[own], self._sizes[own] = self._clock(), len(content)
        return own

    def find(self, name: str) -> tuple[Path, str] | None:
        """The file and the name it has for people; None if there is none, or no longer."""
        self._forget()
        if name not in self._times:
            return None
        return Path(self._folder.name) / name, name.partition(".")[2]

    def _forget(self) -> None:
        """Remove the files whose time is over, and the oldest of too many, or too large ones."""
        old = self._clock() - _SECONDS
        while self._times and (
            len(self._times) >= _MOST
            or sum(self._sizes.values()) > _MOST_BYTES
            or next(iter(self._times.values())) < old
        ):
            name = next(iter(self._times))
            del self._times[name], self._sizes[name]
            (Path(self._folder.name) / name).unlink(missing_ok=True)
