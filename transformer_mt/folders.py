"""Folders of runs: trained in by one process at a time, and moved out of the way but never deleted."""

import fcntl
import itertools
import time
from pathlib import Path
from typing import IO

from transformer_mt.errors import InputError


def lock_folder(folder: Path) -> IO[str]:
    """Keep other processes from training in the folder, for as long as the file stays open."""
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{folder}: another process trains here; wait for it, or choose another folder with --out"
        ) from None
    return lock


def set_aside(folder: Path) -> Path:
    """Move an old run, in which nobody trains, to a name that says when; gives back that name."""
    if Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: must be moved out of the way, but you are in it; start from outside it")
    name = f"{folder.resolve().name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    paths = (folder.with_name(name + (f"-{i}" if i else "")) for i in itertools.count())
    aside = next(path for path in paths if not path.exists())
    with lock_folder(folder):  # not from under its process
        folder.rename(aside)
    return aside
