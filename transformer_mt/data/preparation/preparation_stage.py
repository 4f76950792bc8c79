"""A stage of a preparation: the same function of every number of some range, and what does its tasks."""

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from transformer_mt.companion import shown
from transformer_mt.cpu import usable_cores
from transformer_mt.data.preparation.store import FACTS_FILE, Store
from transformer_mt.errors import WorkError
from transformer_mt.messages import say
from transformer_mt.processes import in_forks, may_fork
from transformer_mt.progress_bar import show_progress

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
    """The cores that do the tasks; a companion may bring others than this machine's."""

    def close(self) -> None:
        """Let them go."""
        ...

    def run(self, task: Callable[[int], object], numbers: Sequence[int]) -> Iterable[int]:
        """The numbers of the tasks as they are done, in any order. WorkError where one cannot be."""
        ...


class LocalEngine:
    """The cores of this machine."""

    def __init__(self, most: int | None = None) -> None:
        """`most`: so many tasks at a time, or one."""
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
