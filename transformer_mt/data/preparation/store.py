"""The files of a preparation: each is written whole or not at all, and several processes may write the same
one, with the same bytes.
"""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from transformer_mt.companion import hooks
from transformer_mt.corpora.remote import is_url
from transformer_mt.errors import InputError
from transformer_mt.files import replacing, write_bytes

FACTS_FILE = "facts.json"
"""The manifest; written last, it says that the data are complete."""


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


class Store(Protocol):
    """The files of a preparation by their names; a companion may bring other stores."""

    location: str

    def write(self, name: str, content: bytes) -> None: ...
    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes: ...
    def fetch(self, name: str, path: Path) -> None: ...
    def sizes(self, folder: str) -> dict[str, int]: ...
    def exists(self, name: str) -> bool: ...
    def remove(self, name: str) -> None: ...


def sizes_of(store: Store, names: Sequence[str]) -> list[int]:
    """Bytes of files of one folder. FileNotFoundError where another preparation has completed the data, and
    removed them.
    """
    sizes = store.sizes(names[0].rpartition("/")[0]) if names else {}
    if missing := [name for name in names if name not in sizes]:
        raise FileNotFoundError(missing[0])
    return [sizes[name] for name in names]


def store_at(location: str) -> Store:
    """The store at a path or a URL. InputError for a URL that no companion opens."""
    if not is_url(location):
        return LocalStore(Path(location).absolute())
    for open_store in hooks("open_store"):
        return open_store(location.rstrip("/"))
    raise InputError(f"{location}: must be a folder, as no installed companion keeps data at a URL")
