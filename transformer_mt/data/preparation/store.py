"""The files of a preparation: each is written whole or not at all, and several processes may write the same
one, with the same bytes.
"""

import random
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow

from transformer_mt.companion import hooks, shown
from transformer_mt.corpora.remote import is_url
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import replacing, write_bytes
from transformer_mt.messages import say, show_progress
from transformer_mt.processes import in_forks, may_fork, usable_cores

FACTS_FILE = "facts.json"
"""The manifest; written last, it says that the data are complete."""


class LocalStore:
    """Files by their names in a folder of this machine, or of a file system that machines share."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.location = folder, str(folder)

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically: a reader sees the whole file or none."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        write_bytes(path, content)

    def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """The bytes [begin, end) of a file, by default all. FileNotFoundError if the file is missing."""
        with (self._folder / name).open("rb") as file:
            file.seek(begin)
            return file.read(-1 if end is None else end - begin)

    def fetch(self, name: str, path: Path) -> None:
        """Copy a file to another folder of this machine."""
        with replacing(path) as temporary:
            shutil.copyfile(self._folder / name, temporary)

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes in bytes of the files in a folder, by name; empty if there is no such folder."""
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
    """Sizes in bytes of files in the same folder. FileNotFoundError if another preparation has completed the
    data and removed the files.
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


_BOUND = np.dtype(np.uint64)
_AT_ONCE = 16
"""How many requests are sent to the store at the same time."""


class Sections:
    """Files of values of one dtype, divided into sections. A file has the section bounds, then the values."""

    def __init__(self, store: Store, kind: np.dtype, count: int) -> None:
        self._store, self._kind = store, kind
        self._header = _BOUND.itemsize * (count + 1)

    def write(self, name: str, values: np.ndarray, bounds: np.ndarray) -> None:
        """Write values sorted by section. `bounds` holds the number of values before each section and, as its
        last entry, the number of all values.
        """
        content = bounds.astype(_BOUND).tobytes() + values.astype(self._kind).tobytes()
        self._store.write(name, content)

    def read(self, names: Iterable[str], section: int) -> list[np.ndarray]:
        """The values of one section in each of several files. The files are read in parallel, because a
        remote store answers slowly.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(partial(self._read, section), names))

    def _read(self, section: int, name: str) -> np.ndarray:
        size = _BOUND.itemsize
        ends = self._store.read(name, size * section, size * (section + 2))
        begin, end = (np.frombuffer(ends, _BOUND).astype(int) * self._kind.itemsize + self._header).tolist()
        return np.frombuffer(self._store.read(name, begin, end), self._kind)

    def read_all(self, name: str) -> np.ndarray:
        """The values of all sections."""
        return np.frombuffer(self._store.read(name)[self._header :], self._kind)

    def num_values(self, num_bytes: int) -> int:
        """The number of values in a file of `num_bytes` bytes."""
        return (num_bytes - self._header) // self._kind.itemsize


def text_bytes(columns: Mapping[str, list[Any]]) -> bytes:
    """Columns of equal length."""
    table = pyarrow.table(columns)
    with pyarrow.BufferOutputStream() as stream:
        options = pyarrow.ipc.IpcWriteOptions(compression="zstd")
        with pyarrow.ipc.new_file(stream, table.schema, options=options) as writer:
            writer.write_table(table)
        return stream.getvalue().to_pybytes()


def text_columns(content: bytes) -> dict[str, list[Any]]:
    """The columns that `text_bytes` wrote."""
    return pyarrow.ipc.open_file(content).read_all().to_pydict()


_SAID_FROM = 1_000_000  # rows; smaller stages are too quick to be logged


class PreparationStage(Protocol):
    """One kind of work, in tasks that depend on the results of earlier stages only. A task always writes
    files with the same bytes, in any process and when it is repeated.
    """

    what: str
    """The word for its work, for a progress bar."""
    sizes: list[int]
    """Rows of each task."""

    def result(self, number: int) -> str:
        """The file that a task writes last: where it is, the task is done."""
        ...

    def run(self, number: int) -> None:
        """Do a task."""
        ...


class PreparationEngine(Protocol):
    """The cores that do the tasks; a companion may provide cores of other machines."""

    def close(self) -> None:
        """Release the cores."""
        ...

    def run(self, task: Callable[[int], object], numbers: Sequence[int]) -> Iterable[int]:
        """Do the tasks; yields the number of each when done, in any order. WorkError if a task fails."""
        ...


class LocalEngine:
    """The cores of this machine."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: the maximum number of tasks at a time; one task can always run."""
        self._most = usable_cores() if most is None else min(most, usable_cores())

    def close(self) -> None:
        """Its workers have ended with their tasks."""

    def run(self, task: Callable[[int], object], numbers: Sequence[int]) -> Iterable[int]:
        workers = min(self._most, len(numbers))
        if workers > 1 and may_fork():
            yield from in_forks(task, numbers, workers)
            return
        for number in numbers:
            task(number)
            yield number


def run_stage(stage: PreparationStage, engine: PreparationEngine, store: Store) -> None:
    """Do the tasks of a stage that are not done yet."""

    def task(number: int) -> None:
        # Another process may have finished this task, or the whole preparation, meanwhile.
        if not store.exists(stage.result(number)) and not store.exists(FACTS_FILE):
            stage.run(number)

    files = store.sizes(stage.result(0).rpartition("/")[0])
    numbers = [n for n in range(len(stage.sizes)) if stage.result(n) not in files]
    random.shuffle(numbers)  # several preparations of the same data share the work
    total = sum(stage.sizes)
    done = total - sum(stage.sizes[n] for n in numbers)
    bar = show_progress(None, stage.what, total, done, unit="pairs")
    missing = set(numbers)
    for number in engine.run(task, numbers):
        if number not in missing:
            raise WorkError(f"{shown(type(engine))}.run must give each number once, but gives {number!r}")
        missing.remove(number)
        tenths = 10 * done // max(1, total)
        done += stage.sizes[number]
        bar.update(stage.sizes[number])
        if total >= _SAID_FROM and 10 * done // total > tenths:
            say(f"{stage.what}: {done:,} of {total:,} pairs")
    bar.close()
    if missing:
        raise WorkError(f"{shown(type(engine))}.run must do all tasks, but left out {len(missing):,}")
