"""Translated files that wait to be fetched."""

import re
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

_SECONDS = 1800.0
"""A file can be fetched for half an hour."""
_MOST = 1000
"""Files that are kept: with more, the oldest are removed before another is added."""
_NAME_BYTES = 150
"""Bytes of a file's own name that are kept."""
_NO_NAME = re.compile(r"[^\w. -]+")


def _new_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="transformer_mt-files-", ignore_cleanup_errors=True)


class TranslatedFiles:
    """Files by names that nobody can guess, in a folder that ends with the server."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, most_bytes: int = 1_000_000_000) -> None:
        """Files of more than `most_bytes` together are too many, too."""
        self._clock, self._most_bytes = clock, most_bytes
        self._folder = _new_folder()
        self._kept: dict[str, tuple[float, int]] = {}
        """The time and the size of each file, the oldest first."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # files are added in threads

    def add(self, content: bytes, name: str, target: str) -> str:
        """Keep the translation of a file of this name. Returns the name that it is fetched by."""
        path = PurePath(name.replace("\\", "/"))
        stem = _NO_NAME.sub("_", path.stem).encode()[:_NAME_BYTES].decode(errors="ignore")
        kept = f"{stem.strip('. ') or 'file'}_{target}{_NO_NAME.sub('', path.suffix)}"
        key = f"{secrets.token_urlsafe(16)}.{kept}"
        with self._lock:
            if not Path(self._folder.name).is_dir():  # a cleaner of /tmp has removed it
                self._folder, self._kept = _new_folder(), {}
        path = Path(self._folder.name) / key
        try:
            path.write_bytes(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        with self._lock:
            self._forget()
            self._kept[key] = self._clock(), len(content)
            self._forget_in_time()
        return key

    def close(self) -> None:
        """Remove all files."""
        if self._timer is not None:
            self._timer.cancel()
        self._folder.cleanup()

    def _forget_in_time(self) -> None:
        """Remove files whose time is over without a request, too: they are somebody's texts."""
        if self._timer is None and self._kept:
            self._timer = threading.Timer(_SECONDS + 1, self._time_is_over)
            self._timer.daemon = True
            self._timer.start()

    def _time_is_over(self) -> None:
        with self._lock:
            self._timer = None
            self._forget()
            self._forget_in_time()

    def find(self, name: str) -> tuple[Path, str] | None:
        """The file and the name it has for people; None if there is none, or no longer."""
        with self._lock:
            self._forget()
            if name not in self._kept:
                return None
        return Path(self._folder.name) / name, name.partition(".")[2]

    def _forget(self) -> None:
        """Remove the files whose time is over, and the oldest where they are too many or too large."""
        old, size = self._clock() - _SECONDS, sum(size for _, size in self._kept.values())
        for name, (added, length) in list(self._kept.items()):
            if len(self._kept) < _MOST and size <= self._most_bytes and added >= old:
                return
            size -= length
            del self._kept[name]
            (Path(self._folder.name) / name).unlink(missing_ok=True)
