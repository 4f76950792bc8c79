"""Files: written whole or not at all, locked, in the cache."""

import errno
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from transformer_mt.errors import InputError, Setting, nearest

_WHOLE, _PARTS, _PART = 2**24, 64, 2**16
"""`sample_digest` reads files of up to _WHOLE bytes whole; else it reads _PARTS parts of _PART bytes each."""

_LOCK = ".lock"
_PROBE = 0.3  # seconds for which another program may hold a lock only to see who holds it (`is_locked`)
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp")  # the names of `replacing`

DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES, errno.EROFS}
"""Numbers of errors of this machine's disks."""


def write_text(path: Path, text: str) -> None:
    """Write `text` atomically: readers, also after a power cut, see the old file or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, *parts: bytes | memoryview) -> None:
    """Write the parts atomically, one after the other."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside `path`, which takes its place at the end; several processes may do so at once."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with naming(temporary):
            yield temporary
        fsync(temporary)
        temporary.replace(path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)
            del error.filename2  # None would be shown
        raise


_COMPARED_NAMES = 1000  # of a folder's files, with a name that is not there


def missing(path: str | Path) -> str:
    """The message for a missing file, or for a link whose target is missing."""
    name, path = str(path), Path(path)
    if path.is_symlink():
        return f"{path}: must be a file, but is a link to {path.readlink()}, which is missing"
    if web := re.match(r"(https?):/+", name):
        address = f"{web[1]}://{name[web.end() :]}"
        return f"{address}: must be a file here; download it first: curl -LO {address}"
    there: list[str] = []
    with suppress(OSError):  # no such folder, or no right to read it
        there = [file.name for file in itertools.islice(path.parent.iterdir(), _COMPARED_NAMES)]
    near = nearest(path.name, there, cutoff=0.75)
    hint = f"did you mean {path.parent / near}?" if near else "paths are relative to the current folder"
    return f"{path}: no such file; {hint}"


def check_is_new(out: Path) -> None:
    """InputError if there is something at `out`."""
    if out.exists():
        obstacle = "a folder is there" if out.is_dir() else "a file is there"
        raise InputError(f"{out}: must be a new folder, but {obstacle}; remove it or name another")


def fsync(path: Path) -> None:
    """Flush the content of a file, or the names in a folder, to the disk."""
    is_windows = sys.platform == "win32"  # it opens no folders, and flushes only what it may write
    if is_windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if is_windows else os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An OSError that does not say which file it is about names this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
            del error.filename2  # None would be shown
        raise


def read_objects(path: Path) -> list[Any]:
    """The objects of a file with one JSON object per line; lines that are none, as a crash may leave, are
    skipped.
    """
    objects = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            objects.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return objects


def to_json(value: Any, **options: Any) -> str:
    """Convert to JSON as RFC 8259 defines it, without NaN and Infinity: such numbers become null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(_only_finite(value), allow_nan=False, **options)


def _only_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _only_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_only_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def digest(*paths: Path) -> str:
    """24 hexadecimal digits of a hash of the files' contents."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()[:24]


def sample_digest(path: Path) -> str:
    """A hash of the file's content; only parts of a large file are read, as all would take seconds."""
    whole, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()[:24]
        for number in range(_PARTS):
            file.seek(number * (size - _PART) // (_PARTS - 1))
            whole.update(file.read(_PART))
    return whole.hexdigest()[:24]


class FolderLock:
    """A held lock on a folder; `release` it, or leave its `with` block. It also ends with the process."""

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock

    def release(self) -> None:
        with suppress(OSError):  # it ends with the process at the latest
            self._lock.release(force=True)

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock_folder(folder: Path) -> FolderLock:
    """Keep others from training in the folder. InputError if another process, or another run in this process,
    trains there.
    """
    lock = _file_lock(folder)
    try:
        with naming(folder / _LOCK):
            lock.acquire(timeout=_PROBE)
    except Timeout:
        raise InputError(
            f"{folder}: another training runs here; wait for it, or choose another folder with ",
            Setting("out"),
        ) from None
    for leftover in folder.glob(".*.tmp"):  # of a training that was killed while it wrote
        if _TEMPORARY.fullmatch(leftover.name):  # the folder may hold files of others
            leftover.unlink(missing_ok=True)
    return FolderLock(lock)


def is_locked(folder: Path) -> bool:
    """Whether a training holds the folder's lock now."""
    if not (folder / _LOCK).exists():
        return False
    lock = _file_lock(folder)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:  # a folder of others, which cannot be written
        return False
    lock.release()
    return False


def wait_for_folder(folder: Path) -> FolderLock:
    """Lock the folder, waiting for another process if there is one."""
    lock = _file_lock(folder)
    with naming(folder / _LOCK):
        lock.acquire()
    return FolderLock(lock)


def _file_lock(folder: Path) -> FileLock:
    return FileLock(folder / _LOCK, thread_local=False)


def set_aside(folder: Path) -> Path:
    """Move an old run, in which nobody trains, to a name with the time in it; returns that name."""
    if Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: cannot be moved aside, as it is the current folder; start elsewhere")
    name = f"{folder.resolve().name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (folder.with_name(name + (f"-{i}" if i else "")) for i in itertools.count())
    aside = next(path for path in paths if not path.exists())
    with lock_folder(folder):  # fails if another process trains there
        folder.rename(aside)
    return aside


def cache_root() -> Path:
    """$TRANSFORMER_MT_CACHE, or transformer_mt in the user's cache folder. May be deleted at any time between
    runs.
    """
    if root := os.environ.get("TRANSFORMER_MT_CACHE"):
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer_mt"
