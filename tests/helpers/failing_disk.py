"""Commands on a disk of which one call fails (failing_disk.c), in forks of a server that has it preloaded."""

import ctypes
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.helpers import command
from tests.helpers.command import Result

KILL = 0
FAILURES = {"full": errno.ENOSPC, "damaged": errno.EIO, "forbidden": errno.EACCES, "killed": KILL}
_ROOT = Path(__file__).parents[2]


class Call(NamedTuple):
    """What a process asked of a watched folder: `kind` is write, rename, ..."""

    number: int
    kind: str
    path: Path
    failed: bool


class FailingDisk:
    """Runs commands and lets a call of theirs fail in `folder`, where all that they write must stand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # LD_PRELOAD ends a name at a space.
        self._place = tempfile.TemporaryDirectory(dir="/tmp")
        library = Path(self._place.name) / "failing_disk.so"
        source = Path(__file__).with_suffix(".c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.failing_disk"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": str(_ROOT)},
        )

    def close(self) -> None:
        self._server.communicate()
        self._place.cleanup()

    def run(
        self, *words: object, cwd: Path, failing: int = 0, failure: str = "full", **environment: str
    ) -> tuple[Result, list[Call]]:
        """The command's result, and what it asked of `cwd`; call number `failing` fails, none for 0."""
        files = self.folder / "standard files"
        files.mkdir(exist_ok=True)
        for name in ("in", "out", "err", "calls"):
            (files / name).write_bytes(b"")
        job = {
            "words": [str(word) for word in words],
            "files": str(files),
            "cwd": str(cwd),
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", **environment},
            "failing": failing,
            "error": FAILURES[failure],
        }
        self._server.stdin.write(json.dumps(job) + "\n")
        self._server.stdin.flush()
        status = int(self._server.stdout.readline())
        out, err = ((files / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err"))
        calls = [_call(line) for line in (files / "calls").read_text(encoding="utf-8").splitlines()]
        return Result(status, out, err), calls


def _call(line: str) -> Call:
    number, kind, path = line.split(" ", 2)
    failed = path.endswith(" FAILED")
    return Call(int(number), kind, Path(path.removesuffix(" FAILED")), failed)


def _serve() -> None:
    """Fork for each job that a line of standard input describes, and print its status."""
    import tests.helpers.warm  # noqa: F401

    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if not child:
            files = Path(job["files"])
            library = ctypes.CDLL(None)
            for name in ("in", "out", "err"):
                (files / name).touch()
            begin = (library.failing_disk, job["cwd"].encode(), ctypes.c_long(job["failing"]), job["error"])
            before = (_begin, begin, str(files / "calls").encode())
            command._run(job["words"], files, Path(job["cwd"]), job["environment"], before, False)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


def _begin(begin: tuple, log: bytes) -> None:
    function, *arguments = begin
    function(*arguments, log)


if __name__ == "__main__":
    _serve()
