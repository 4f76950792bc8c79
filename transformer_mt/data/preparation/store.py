"""The files of a preparation: each is written whole or not at all, and several processes may write the same
one, with the same bytes.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from transformer_mt.corpora.remote import file_system, is_url
from transformer_mt.errors import WorkError
from transformer_mt.files import DISK_ERRORS, replacing, write_bytes

FACTS_FILE = "facts.json"
"""The manifest; written last, it says that the data are complete."""

_TRIES, _SECONDS = 6, 0.5
"""Tries of a request, and the wait before the second one; it doubles each time."""

T = TypeVar("T")


class LocalStore:
    """Files by their names in a folder of this machine, or of a file system that machines share."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.location = folder, str(folder)

    def write(self, name: str, content: bytes) -> None:
        """Write a file; who reads it sees all of it, or none."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, content)

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """The content of a file, or its bytes from `begin` to before `end`. FileNotFoundError without it."""
        with (self._folder / name).open("rb") as file:
            file.seek(begin)
            return file.read(-1 if end is None else end - begin)

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file to another folder of this machine."""
        with replacing(path) as temporary:
            shutil.copyfile(self._folder / name, temporary)

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of the files in a folder, by their names; none where it is not there."""
        sizes = {}
        for path in (self._folder / folder).glob("[!.]*"):
            with suppress(FileNotFoundError):  # another preparation may have removed it
                if path.is_file():
                    sizes[path.relative_to(self._folder).as_posix()] = path.stat().st_size
        return sizes

    def exists(self, name: str) -> bool:
        return (self._folder / name).is_file()

    def remove(self, name: str) -> None:
        """Remove a file or a folder, if it is there."""
        shutil.rmtree(self._folder / name, ignore_errors=True)
        with suppress(OSError):
            (self._folder / name).unlink()


class RemoteStore:
    """Objects of a store that fsspec knows, such as s3:// and gs://: a file appears when it is whole."""

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
        """The answer; a store that is busy or slow is asked again. WorkError if it stays so."""
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


Store = LocalStore | RemoteStore


def sizes_of(store: Store, names: Sequence[str]) -> list[int]:
    """Bytes of files of one folder. FileNotFoundError where another preparation has completed the data, and
    removed them.
    """
    sizes = store.sizes(names[0].rpartition("/")[0]) if names else {}
    if missing := [name for name in names if name not in sizes]:
        raise FileNotFoundError(missing[0])
    return [sizes[name] for name in names]


def store_at(location: str) -> Store:
    """The store at a path or a URL."""
    return RemoteStore(location.rstrip("/")) if is_url(location) else LocalStore(Path(location).absolute())
