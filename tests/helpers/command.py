"""Commands in a process of their own; the fixture `cli` (tests/conftest.py) is how tests run them.

A fresh Python takes three seconds to import torch and the rest; a fork of one that has imported everything
already takes a few hundredths.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.helpers.warm"])

Before = Callable[..., None]


def _start_server() -> None:
    """Start the server if it does not run, with the folder of `tests` in its path: it gets the path of its
    parent only for its children, and a library has a package `tests`, too. Without PYTHONSAFEPATH it would
    look in the current folder first, where a test may have put another copy of the package.
    """
    path = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        patch.setenv("PYTHONSAFEPATH", "1")
        forkserver.ensure_running()


class Result(NamedTuple):
    """An ended command; `status` is -N after signal N."""

    status: int
    out: str
    err: str


class WarmProcess:
    """A running command; `before(*arguments)` is called in it first, to replace functions for example."""

    def __init__(
        self,
        words: tuple[object, ...],
        cwd: Path | None = None,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        before: tuple[Any, ...] = (),
        picture: bool = False,
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warm")
        files = Path(self._folder.name)
        (files / "in").write_bytes(stdin)
        environment = {**os.environ, **(env or {})}
        self.words = [str(word) for word in words]
        _start_server()
        self._process = _CONTEXT.Process(
            target=_run, args=(self.words, files, cwd or Path.cwd(), environment, before, picture)
        )
        self._process.start()
        self._files = files

    @property
    def stderr_so_far(self) -> str:
        file = self._files / "err"
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def runs(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def wait(self, timeout: float = 300) -> Result:
        """The result, once the command has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"{self.words} did not end in {timeout} seconds: {self.stderr_so_far}")
        out, err = (_text((self._files / name).read_bytes()) for name in ("out", "err"))
        self._folder.cleanup()
        return Result(self._process.exitcode, out, err)


def _run(
    words: list[str],
    files: Path,
    cwd: Path,
    environment: dict[str, str],
    before: tuple[Any, ...],
    picture: bool,
) -> None:
    """In the fork: become the command. Never returns."""
    for number, (name, flags) in enumerate(
        (("in", os.O_RDONLY), ("out", os.O_WRONLY | os.O_CREAT), ("err", os.O_WRONLY | os.O_CREAT))
    ):
        os.dup2(os.open(files / name, flags), number)
    sys.stdin, sys.stdout, sys.stderr = (  # they stay open to the end of the process
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        for number, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # is chosen again, by this environment
    # Pytest may run in the background, where SIGINT is ignored
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    status: Any = 1
    try:
        import torch

        if threads := environment.get("OMP_NUM_THREADS"):
            torch.set_num_threads(int(threads))
        if not picture:  # drawing one takes as long as a tiny training
            from transformer_mt.run import report

            report.learning_curve = lambda entries, path: None
        if before:
            before[0](*before[1:])
        from transformer_mt import cli

        sys.argv = ["transformer-mt", *words]
        status = cli.main()
    except SystemExit as stop:
        status = stop.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status if isinstance(status, int) else 1)


def run_command(
    *words: object, cwd: Path | None = None, stdin: bytes = b"", new: bool = False, **options: Any
) -> Result:
    """The command, run to its end: in a fork, or if `new` in a new Python, for tests of what the start of a
    process does. `before=(function, ...)` and `picture=True` as for WarmProcess; other options are
    environment variables.
    """
    if not new:
        own = {name: options.pop(name) for name in ("before", "picture") if name in options}
        return WarmProcess(words, cwd, stdin, options, **own).wait()
    done = subprocess.run(
        [sys.executable, "-m", "transformer_mt", *map(str, words)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **options},
        timeout=300,
    )
    return Result(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")
