"""Training and scoring the jobs of a sweep, each in a process of its own; what is done is not done again."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import IO

from transformer_mt.config_file import dump_config
from transformer_mt.errors import WorkError
from transformer_mt.sweep.plan import Job, Sweep

# Seconds between lines that say how far the jobs are.
_SAY_EVERY = 60.0


class Runner:
    """Places where jobs run side by side: devices, or shares of this machine's cores."""

    def __init__(self, sweep: Sweep, places: Sequence[str | None], say: Callable[[str], None]) -> None:
        """`places` are devices, such as cuda:0, for one job at a time each; None is the device of the config."""
        self.sweep, self._say = sweep, say
        self._places: SimpleQueue[str | None] = SimpleQueue()
        for place in places:
            self._places.put(place)
        self._num_places = len(places)
        self._running: dict[Job, subprocess.Popen] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self, done: Callable[[], object]) -> list[str]:
        """All jobs that are not done; calls `done` after each, and gives back a line for each that failed.

        Ctrl-C lets the running ones save, and goes on up.
        """
        failures = []
        with ThreadPoolExecutor(self._num_places) as pool:
            futures = {pool.submit(self._job, job): job for job in self.sweep.jobs if not is_done(job)}
            try:
                for future in as_completed(futures):
                    try:
                        future.result()
                    except WorkError as error:
                        failures.append(str(error))
                        self._say(str(error))
                    done()
            except BaseException:
                self._stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return failures

    def _job(self, job: Job) -> None:
        place = self._places.get()
        device = [f"train.device={place}"] if place else []
        try:
            self._say(f"{job.variant}, seed {job.seed}: trains in {job.folder}{f' on {place}' if place else ''}")
            job.folder.mkdir(parents=True, exist_ok=True)
            with (job.folder / "log.txt").open("a", encoding="utf-8") as log:
                self._call(job, log, "train", str(self.sweep.base), *job.words, *device, "--out", str(job.folder))
                if job.config.data.test:
                    self._call(job, log, "evaluate", str(job.folder), "--device", place or "auto")
            self._say(f"{job.variant}, seed {job.seed}: done")
        finally:
            self._places.put(place)

    def _call(self, job: Job, log: IO[str], *words: str) -> None:
        command = [sys.executable, "-m", "transformer_mt", *words]
        with self._lock:
            if self._stopping.is_set():
                raise WorkError(f"{job.variant}, seed {job.seed}: stopped")
            # In a session of its own, so that Ctrl-C reaches it once, from here.
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment(),
                start_new_session=True,
            )
            self._running[job] = process
        try:
            while True:
                try:
                    status = process.wait(_SAY_EVERY)
                    break
                except subprocess.TimeoutExpired:
                    self._say(f"{job.variant}, seed {job.seed}: {_last_line(job.folder / 'log.txt')}")
        finally:
            self._running.pop(job, None)
        if status:
            log_file = job.folder / "log.txt"
            raise WorkError(f"{job.variant}, seed {job.seed}: {_last_line(log_file)} (all of it is in {log_file})")

    def _environment(self) -> dict[str, str]:
        threads = max(1, (os.cpu_count() or 1) // self._num_places)
        return {"OMP_NUM_THREADS": str(threads), **os.environ} if self._num_places > 1 else dict(os.environ)

    def _stop(self) -> None:
        with self._lock:
            self._stopping.set()
            for process in self._running.values():
                process.terminate()  # a training saves; the rest has nothing to lose


def is_done(job: Job) -> bool:
    """Whether the job was trained, by this very config, and scored."""
    model, finished = job.folder / "model.safetensors", job.folder / "finished.json"
    scores = [job.folder / "evaluation" / f"test-{i}.scores.json" for i in range(len(job.config.data.test))]
    if not all(file.exists() for file in (model, finished, *scores)):
        return False
    if any(file.stat().st_mtime < model.stat().st_mtime for file in scores):
        return False
    written = (job.folder / "config.yaml").read_text(encoding="utf-8")
    return _without_device(written) == _without_device(dump_config(job.config, comments=True))


def _without_device(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.strip().startswith("device:")]


def _last_line(log: Path) -> str:
    """What a job said last; progress bars write over their own line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "nothing said")
