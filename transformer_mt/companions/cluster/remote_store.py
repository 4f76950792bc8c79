"""Prepared data in an object store: a file appears when it is whole."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from transformer_mt.corpora.remote import file_system
from transformer_mt.errors import WorkError
from transformer_mt.files import DISK_ERRORS, replacing

_TRIES, _SECONDS = 6, 0.5
"""How often a request is tried, and seconds to wait before the second try; the wait doubles each time."""

T = TypeVar("T")


class RemoteStore:
    """An object store that fsspec knows, such as s3:// or gs://. A file appears only once it is complete."""

    def __init__(self, url: str) -> None:
        self.location = url
        file_system(url)  # InputError now for a package that is missing

    def write(self, name: str, content: bytes) -> None:
        self._request(lambda files, root: files.pipe_file(f"{root}/{name}", content))

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        if end is not None and end <= begin:
            return b""
        part = {} if end is None else {"start": begin, "end": end}
        content: bytes = self._request(lambda files, root: files.cat_file(f"{root}/{name}", **part))
        return content

    def fetch(self, name: str, path: Path) -> None:
        with replacing(path) as temporary:
            self._request(lambda files, root: files.get_file(f"{root}/{name}", str(temporary)))

    def sizes(self, folder: str) -> dict[str, int]:
        def listed(files: Any, root: str) -> dict[str, int]:
            try:
                infos = files.ls(f"{root}/{folder}".rstrip("/"), detail=True, refresh=True)
            except FileNotFoundError:
                return {}
            sizes = {info["name"].lstrip("/"): info["size"] for info in infos if info["type"] == "file"}
            return {name.removeprefix(f"{root.lstrip('/')}/"): size for name, size in sizes.items()}

        return self._request(listed)

    def exists(self, name: str) -> bool:
        return self._request(lambda files, root: bool(files.exists(f"{root}/{name}")))

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._request(lambda files, root: files.rm(f"{root}/{name}", recursive=True))

    def _request(self, ask: Callable[[Any, str], T]) -> T:
        """The store's answer. A busy or slow store is asked again; WorkError if all tries fail."""
        for tried in range(1, _TRIES + 1):
            try:
                files, root = file_system(self.location)
                return ask(files, root.rstrip("/"))
            except (FileNotFoundError, PermissionError):
                raise
            except Exception as error:  # each kind of store has its own
                if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                    raise
                if tried == _TRIES:
                    raise WorkError(
                        f"{self.location}: cannot be used: {error}; check network and store, and start "
                        "again: it resumes from here"
                    ) from None
                time.sleep(_SECONDS * 2 ** (tried - 1))
        raise AssertionError
