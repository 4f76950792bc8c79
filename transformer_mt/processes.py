"""Work in forks of this process: they have its memory already, and end with it."""

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

from transformer_mt.errors import UserError, WorkError


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
        theirs.close()  # so that the end of the process ends a wait for it

    def send(self, value: Any) -> None:
        with suppress(ConnectionError):  # `receive` says that it has ended
            self.pipe.send(value)

    def receive(self) -> Any:
        """The next thing that it sends; an error is raised. WorkError if it has ended."""
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
    for other in others:  # so that the end of the parent ends a wait for it
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
