"""The cores of this machine, child processes, and what other programs take of it."""

import gc
import multiprocessing
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from transformer_mt.errors import UserError, WorkError
from transformer_mt.messages import duration

_LEAST_SECONDS = 1.0
"""The shortest time over which the use of cores is measured: the system counts in hundredths of a second."""

_FEW_CORES = 0.2
"""Other programs are mentioned only if they use at least this share of the cores."""


class OtherPrograms:
    """How many of this process's cores other programs use on average from now on; zero if not on Linux."""

    def __init__(self) -> None:
        self._begun = _used_by_others()

    def note(self, seconds: float) -> str:
        """Says how long work that now takes `seconds` would take alone; empty if others use few cores."""
        clock, used = (now - begun for now, begun in zip(_used_by_others(), self._begun))
        cores, usable = used / max(_LEAST_SECONDS, clock), usable_cores()
        if cores < _FEW_CORES * usable or clock < _LEAST_SECONDS:
            return ""
        alone = duration(seconds * max(0.1, 1 - cores / usable))
        return f"; other programs use {cores:.1f} of {usable} cores: alone about {alone}"


def _used_by_others() -> tuple[float, float]:
    """The clock, and the CPU time of other programs on the cores of this process, in seconds."""
    try:
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
        names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return time.perf_counter(), 0.0
    rows = [line.split() for line in lines if line.partition(" ")[0] in names]
    # user, nice and system; then, after idle times, interrupts
    ticks = sum(int(value) for row in rows for value in row[1:4] + row[6:8])
    return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK") - time.process_time()


def may_fork() -> bool:
    """True if this process may have forks that work for it."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


class Fork:
    """A fork that runs a function with one end of a pipe; `pipe` is the other end."""

    def __init__(self, run: Callable[[Connection], Any], others: Sequence["Fork"]) -> None:
        """`others` are the forks that were started before."""
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        ends = [self.pipe, *(other.pipe for other in others)]
        self._process: BaseProcess = context.Process(target=_begin, args=(run, theirs, ends), daemon=True)
        self._process.start()
        theirs.close()  # so that `receive` stops waiting when the process ends

    def send(self, value: Any) -> None:
        with suppress(ConnectionError):  # `receive` says that it has ended
            self.pipe.send(value)

    def receive(self) -> Any:
        """Return the next value that the fork sends, or raise it if it is an error. WorkError if the fork has
        ended.
        """
        try:
            received = self.pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join(1.0)
            raise WorkError(
                f"a worker process has ended with status {self._process.exitcode}; run the same command "
                "again, with more free memory if it had too little"
            ) from None
        if isinstance(received, BaseException):
            raise received
        return received

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


def _begin(run: Callable[[Connection], Any], pipe: Connection, others: Sequence[Connection]) -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"):  # sent to a terminal's whole group of processes
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    gc.freeze()  # the parent's tensors on a GPU are not to be freed here
    for other in others:  # so that this process stops waiting when the parent ends
        other.close()
    try:
        pipe.send(run(pipe))
    except (EOFError, ConnectionError):  # the parent has ended
        os._exit(0)
    except (UserError, OSError) as error:
        pipe.send(error)
    except Exception as error:
        pipe.send(WorkError(f"a worker process failed: {error!r}"))


def in_forks(work: Callable[[int], Any], numbers: Sequence[int], count: int) -> Iterator[int]:
    """`work` of each number, by `count` forks; yields the numbers in the order in which they are done."""
    waiting, forks, busy = list(reversed(numbers)), list[Fork](), dict[Connection, tuple[Fork, int]]()

    def one_after_the_other(pipe: Connection) -> None:
        while True:
            work(number := pipe.recv())
            pipe.send(number)

    def give(fork: Fork) -> None:
        if waiting:
            busy[fork.pipe] = fork, waiting.pop()
            fork.send(busy[fork.pipe][1])

    try:
        for _ in range(count):
            forks.append(Fork(one_after_the_other, forks))
            give(forks[-1])
        while busy:
            for ready in wait(list(busy)):
                fork, number = busy.pop(cast(Connection, ready))
                fork.receive()
                give(fork)
                yield number
    finally:
        for fork in forks:
            fork.kill()


# Number of iterations for which a waiting thread of libgomp occupies its core before it sleeps. The default
# takes some milliseconds, during which no other program can use the core.
_SPINS = "1000"


def wait_without_spinning() -> None:
    """Let waiting OpenMP threads go to sleep soon, unless the user has chosen how they wait. Has an effect
    only before torch is imported.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = _SPINS


def cpu_name() -> str:
    """The name of the CPU, such as AMD EPYC 9R14."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Number of cores this process may use: fewer than the machine has, in a container or under taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
