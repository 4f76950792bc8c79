"""Locks between processes, and folders of runs: one process trains in each, and none is ever deleted."""

import itertools
import time
from pathlib import Path

from filelock import FileLock, Timeout

from transformer_mt.errors import InputError, Setting


class FolderLock:
    """A held lock on a folder; `release` it, or leave its `with` block. It also ends with the process."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        self._lock.release(force=True)

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock_folder(folder: Path) -> FolderLock:
    """Keep others from training in the folder. InputError if another process, or another run in this one,
    does.
    """
    lock = _file_lock(folder)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"{folder}: another process trains here; wait for it, or choose another folder with ",
            Setting("out"),
        ) from None
    return FolderLock(lock)


def wait_for_folder(folder: Path) -> FolderLock:
    """Lock the folder, waiting for another process if there is one."""
    lock = _file_lock(folder)
    lock.acquire()
    return FolderLock(lock)


def _file_lock(folder: Path) -> FileLock:
    return FileLock(folder / ".lock", thread_local=False)


def set_aside(folder: Path) -> Path:
    """Move an old run, in which nobody trains, to a name with the time in it; returns that name."""
    if Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: must be moved aside, but is the current folder; start elsewhere")
    name = f"{folder.resolve().name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (folder.with_name(name + (f"-{i}" if i else "")) for i in itertools.count())
    aside = next(path for path in paths if not path.exists())
    with lock_folder(folder):  # fails if another process trains there
        folder.rename(aside)
    return aside
