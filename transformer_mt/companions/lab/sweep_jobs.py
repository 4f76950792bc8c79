"""A sweep: one base config, its variants and seeds, each trained and scored in a process of its own; what is
done is not done again.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Annotated, Any

from pydantic import Field, field_validator

from transformer_mt.companions.lab.translated import set_of_file
from transformer_mt.config import Config
from transformer_mt.config.build_part import part_files
from transformer_mt.config.load import as_overrides, flow, given_settings, load_config, load_yaml, shipped
from transformer_mt.config.resolve import with_checkpoint
from transformer_mt.config.root import NAME_PATTERN
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import AnySet, read_set
from transformer_mt.data.preparation.clean import training_pairs
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.set_evaluation import is_of_search, matches_model
from transformer_mt.files import digest, missing, set_aside, write_text
from transformer_mt.messages import duration, say, time_left
from transformer_mt.processes import usable_cores
from transformer_mt.run.config_changes import changed_keys
from transformer_mt.run_folder import RunFolder, facts_of, parent_of
from transformer_mt.settings.section import Section
from transformer_mt.text.hashes import sentence_key
from transformer_mt.version import RESULTS

Settings = dict[str, Any]
_ITS_OWN = {"seed", "name"}


class SweepConfig(Section):
    """The YAML of a sweep."""

    name: str = Field(pattern=NAME_PATTERN)
    """Its folder is runs/NAME; by default the name of the YAML file."""
    base: str
    """The config all variants change, a path seen from this file."""
    settings: Settings = Field({})
    """Dotted keys and their values, the same in all variants."""
    seeds: list[Annotated[int, Field(ge=0, lt=2**32)]] = Field([1, 2, 3], min_length=1)
    """Each variant is trained once with each seed."""
    variants: dict[str, Settings | None]
    """Names of the variants, each with the dotted keys it sets. All are compared with the first variant."""

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds):
            raise ValueError(f"seeds must differ, but are {seeds}")
        return seeds

    @field_validator("settings", "variants")
    @classmethod
    def _seed_and_name_are_its_own(cls, value: dict[str, Any]) -> dict[str, Any]:
        for settings in (value, *value.values()):
            if isinstance(settings, dict) and (wrong := _ITS_OWN & settings.keys()):
                raise ValueError(
                    f"a sweep sets {wrong.pop()} itself; use `seeds`, and the names of the variants"
                )
        return value

    @field_validator("variants")
    @classmethod
    def _folders_differ(cls, variants: dict[str, Settings | None]) -> dict[str, Settings | None]:
        if not variants:
            raise ValueError("variants must name at least one, but there are none")
        for name in variants:
            if not re.fullmatch(r"[^\W_][\w .+-]*", name):
                raise ValueError(
                    "the name of a variant must be letters, digits, spaces and .+-_, a letter or digit "
                    f"first, but is {name!r}"
                )
        if len({folder_name(name).lower() for name in variants}) < len(variants):
            raise ValueError(
                "the names of the variants must differ in more than spaces, underscores and capitals"
            )
        return variants


@dataclass(frozen=True, eq=False)
class Job:
    """One training: a variant with a seed."""

    variant: str
    seed: int
    config: Config
    folder: Path
    """The run's folder."""


@dataclass(frozen=True)
class Sweep:
    """A sweep whose configs are all valid."""

    name: str
    folder: Path
    jobs: tuple[Job, ...]
    """All variants with the first seed, then all with the second, so that a first table is ready early."""

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(job.variant for job in self.jobs))


def load_sweep(path: str | Path, overrides: list[str], out: str | Path | None = None) -> Sweep:
    """Read the sweep from the YAML file. `overrides` (key=value) apply to every variant and take precedence.

    InputError with one line for each mistake in any of the variants.
    """
    path = shipped(Path(path))
    sweep = load_yaml(SweepConfig, path)
    base, folder = path.parent / sweep.base, Path(out) if out else Path("runs") / sweep.name
    for override in overrides:
        if override.split("=")[0].strip() in _ITS_OWN:
            raise InputError(
                f"{path}: a sweep sets {override.split('=')[0].strip()} itself; see its `seeds` and "
                "`variants`"
            )
    jobs: list[Job] = []
    problems: dict[str, dict[str, None]] = {}  # each with the variants that have it
    for seed in sweep.seeds:
        for variant, settings in sweep.variants.items():
            name = f"{sweep.name}-{folder_name(variant)}-{seed}"
            chosen = as_overrides({**sweep.settings, **(settings or {})})
            words = [*chosen, *overrides, f"seed={seed}", f"name={name}"]
            try:
                config = load_config(base, words)
            except InputError as error:
                for line in str(error).split("\n"):
                    problems.setdefault(line.removeprefix("command line: "), {})[variant] = None
                continue
            jobs.append(Job(variant, seed, config, folder / folder_name(variant) / f"seed-{seed}"))
    if problems:
        raise InputError(
            "\n".join(_problem(path, line, list(whose), sweep) for line, whose in problems.items())
        )
    for job in jobs:
        _check_comparable(path, jobs[0], job)
    return Sweep(sweep.name, folder, tuple(jobs))


def _problem(path: Path, line: str, whose: list[str], sweep: SweepConfig) -> str:
    """A problem of all variants is reported once, without naming a variant."""
    return (
        f"{path}: {line}"
        if len(whose) == len(sweep.variants) > 1
        else f"{path}: variant {', '.join(whose)}: {line}"
    )


def _check_comparable(path: Path, first: Job, job: Job) -> None:
    """InputError unless the job is scored in the same way and on the same texts as the first, because other
    scores cannot be compared. Held-out sets are the same only if they are held out of the same pairs.
    """
    keys = ["data.source_lang", "data.target_lang", "data.valid", "data.test", "evaluate"]
    keys += ["train.validate_sentences", "train.monitor_set"]
    sets = [*first.config.data.valid_sets, *first.config.data.test]
    if any(corpus.is_held_out for corpus in sets):
        keys += ["data.train", "data.filter"]
    for key in keys:
        one, other = (attrgetter(key)(either.config) for either in (first, job))
        if one != other:
            raise InputError(
                f"{path}: variant {job.variant}: `{key}` must be as in {first.variant}, so that scores can "
                f"be compared, which is {flow(one)}, but is {flow(other)}"
            )


def folder_name(variant: str) -> str:
    """The name of a variant's folder."""
    return variant.replace(" ", "_")


FACTS_FILE = "job.json"
_TRAINING = ("training data", "validation data", "vocabulary", "parent", "other files")
_SCORING = ("test data", "versions of the program")


def facts_of_job(job: Job) -> dict[str, str]:
    """A hash of each thing that its results depend on."""
    data = job.config.data
    return {
        "training data": _content(data.entries),
        "vocabulary": _files(map(Path, job.config.tokenizer.files)),
        "parent": str(parent_of(job.config).weights_digest()) if job.config.init_from else "",
        "other files": _files(_other_files(job.config)),
        "validation data": _content(data.valid_sets),
        "test data": _content(data.test),
        "versions of the program": str(RESULTS),
    }


def changed_facts(job: Job, facts: dict[str, str]) -> tuple[list[str], list[str]]:
    """Names of the changed facts that affect the training, and of those that affect the scores. Changed test
    sets also affect the training if training pairs are in the old or in the new sets but not in both, because
    pairs that are in a test set are left out of the training.
    """
    before = facts_of(job.folder / FACTS_FILE)
    changed = [name for name in facts if before.get(name, facts[name]) != facts[name]]
    training = [name for name in changed if name in _TRAINING]
    scoring = [name for name in changed if name in _SCORING]
    if "test data" in scoring and not training and _touches_training(job):
        training.append("test data")
    return training, scoring


def _content(corpora: Iterable[AnySet]) -> str:
    return hashlib.sha256(json.dumps([_facts(corpus) for corpus in corpora]).encode()).hexdigest()[:24]


def _facts(corpus: AnySet) -> list[str]:
    """The keys of a corpus, and a hash of the contents of its files."""
    keys = corpus.model_dump_json(exclude={"name", "weight", "license"})
    files = [] if corpus.is_held_out else corpus.local_files()  # type: ignore[union-attr]
    return [keys, _files(files)]


def _other_files(config: Config) -> Iterator[Path]:
    """The files that the training reads besides its corpora, its vocabulary and its parent."""
    data = config.data
    if data.new_pieces.text is not None:
        yield Path(data.new_pieces.text)
    yield from config.train.guided_alignment.files
    yield from chain.from_iterable(part_files(config).values())


def _files(paths: Iterable[Path]) -> str:
    """A hash of the contents of files."""
    stats = ((path, path.stat()) for path in _there(paths))
    return " ".join(_digest(path, of.st_size, (of.st_mtime_ns, of.st_ctime_ns)) for path, of in stats)


def _there(files: Iterable[Path]) -> Iterable[Path]:
    for path in files:
        if not path.exists():
            raise InputError(missing(path))
        yield from sorted(path.rglob("*")) if path.is_dir() else [path]


@cache
def _digest(path: Path, size: int, changed: tuple[int, int]) -> str:
    """Hash of the file, cached by path, size and times of change."""
    return digest(path) if path.is_file() else ""


def _touches_training(job: Job) -> bool:
    """True if a sentence that was added to the test sets or removed from them is the source of a training
    pair or, in corpora whose pairs may also be left out for their target, either side of one. Also True if
    the old test sets are not known.
    """
    data, run = job.config.data, RunFolder(job.folder)
    before, now = set[int](), set[int]()
    for i, corpus in enumerate(data.test):
        if corpus.is_held_out:  # of the training corpora themselves
            continue
        file = run.translations_file(f"test-{i}")
        if not file.exists():
            return True
        sentences = set_of_file(file).sentences
        before |= _keys(sentences)
        now |= _keys(read_set(corpus, data.languages, run.path, "test"))
    differs = before ^ now
    if not differs:
        return False
    for entry in data.entries:
        sides = (
            2
            if entry.is_text or entry.synthetic or len(data.directions) > 1 or data.leaves_out_targets
            else 1
        )
        for pair in training_pairs(entry, data):
            if any(sentence_key(side.strip()) in differs for side in pair[:sides]):
                return True
    return False


def _keys(sentences: Iterable[EvaluationSentence]) -> set[int]:
    return {
        sentence_key(text) for src, references in sentences for text in (src, *references) if text.strip()
    }


# Seconds between lines that say how far the jobs are.
_SAY_EVERY = 60.0


class Runner:
    """Runs jobs in parallel, one per device or per share of this machine's cores."""

    def __init__(self, sweep: Sweep, devices: Sequence[str | None]) -> None:
        """Each of `devices`, such as cuda:0, runs one job at a time; None means the device in the config."""
        self.sweep = sweep
        self._devices: SimpleQueue[str | None] = SimpleQueue()
        for device in devices:
            self._devices.put(device)
        self._num_devices = len(devices)
        self._running: dict[Job, subprocess.Popen] = {}
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    def run(self, done: Callable[[], object]) -> list[str]:
        """Run all jobs that are not done yet. Calls `done` after each job, and returns one line for each job
        that failed.

        On Ctrl-C, the running jobs save their state before KeyboardInterrupt is raised again.
        """
        failures = []
        open_jobs = [job for job in self.sweep.jobs if not is_done(job)]
        before, begun = len(self.sweep.jobs) - len(open_jobs), time.monotonic()
        with ThreadPoolExecutor(self._num_devices) as pool:
            try:
                futures = [pool.submit(self._job, job) for job in open_jobs]
                for number, future in enumerate(as_completed(futures), start=1):
                    try:
                        future.result()
                    except WorkError as error:
                        failures.append(str(error))
                        say(str(error))
                    left = time_left(number, len(futures), time.monotonic() - begun)
                    say(f"{before + number} of {len(self.sweep.jobs)} trainings, about {duration(left)} left")
                    try:
                        done()
                    except (InputError, WorkError, OSError) as error:
                        # Asked for again after the next job, and at the end
                        say(f"no table yet: {error}")
            except BaseException:
                self._stop()
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return failures

    def _job(self, job: Job) -> None:
        device = self._devices.get()
        override = [f"train.device={device}"] if device else []
        try:
            say(f"{job.variant}, seed {job.seed}: trains in {job.folder}{f' on {device}' if device else ''}")
            self._make_ready(job)
            with (job.folder / "log.txt").open("a", encoding="utf-8") as log:
                self._call(
                    job, log, "train", str(job.folder / "job.yaml"), *override, "--out", str(job.folder)
                )
                if job.config.data.test:
                    self._call(
                        job, log, "evaluate", str(job.folder), "--device", device or job.config.train.device
                    )
            say(f"{job.variant}, seed {job.seed}: done")
        except (InputError, OSError) as error:
            raise WorkError(f"{job.variant}, seed {job.seed}: {error}") from None
        finally:
            self._devices.put(device)

    def _make_ready(self, job: Job) -> None:
        """Create the job's folder and write the config to its job.yaml. An old run that was trained with
        other settings or data is moved aside; otherwise only its scores are deleted, so that it is scored
        again.
        """
        name, file, facts = f"{job.variant}, seed {job.seed}", job.folder / "job.yaml", facts_of_job(job)
        if job.folder.exists():
            training, scoring = changed_facts(job, facts)
            if not (_is_same_training(file, job.config) and _is_as_trained(job)):
                training.insert(0, "settings")
            if training:
                aside = set_aside(job.folder)
                say(f"{name}: was trained with other {' and other '.join(training)}; that is now {aside}")
            elif scoring:
                say(f"{name}: was scored with other {' and other '.join(scoring)}; it is scored again")
            for scores in RunFolder(job.folder).scores_files():
                scores.unlink()
        job.folder.mkdir(parents=True, exist_ok=True)
        write_text(file, given_settings(job.config))
        write_text(job.folder / FACTS_FILE, json.dumps(facts, indent=1) + "\n")

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
                    say(f"{job.variant}, seed {job.seed}: {_last_line(job.folder / 'log.txt')}")
        finally:
            with self._lock:
                self._running.pop(job, None)
        if status:
            log_file = job.folder / "log.txt"
            why = _last_line(log_file) if status > 0 else f"killed by signal {-status}; out of memory?"
            raise WorkError(f"{job.variant}, seed {job.seed}: {why} (all of it is in {log_file})")

    def _environment(self) -> dict[str, str]:
        threads = max(1, usable_cores() // self._num_devices)
        return {"OMP_NUM_THREADS": str(threads), **os.environ} if self._num_devices > 1 else dict(os.environ)

    def _stop(self) -> None:
        with self._lock:
            self._stopping.set()
            for process in self._running.values():
                process.terminate()  # a training saves its state; an evaluation has nothing to lose


def is_done(job: Job) -> bool:
    """True if the job was trained, by this very config, and scored."""
    run = RunFolder(job.folder)
    scores = [run.scores_file(f"test-{i}") for i in range(len(job.config.data.test))]
    if not run.is_finished or not all(
        matches_model(file, run) and is_of_search(facts_of(file), job.config.decode) for file in scores
    ):
        return False
    if any(changed_facts(job, facts_of_job(job))):
        return False
    file = job.folder / "job.yaml"
    is_same = file.exists() and file.read_text(encoding="utf-8") == given_settings(job.config)
    return is_same and _is_as_trained(job)


def _is_same_training(file: Path, new: Config) -> bool:
    """True if the config in the file differs at most in the search, the scores and the device."""
    try:
        old = load_config(file)
    except InputError:  # none there, or one of another version
        return False
    settings = []
    for config in (old, new):
        train = config.train.model_copy(update={"device": new.train.device})
        scored = {"decode": new.decode, "evaluate": new.evaluate, "train": train}
        settings.append(given_settings(config.model_copy(update=scored)))
    return settings[0] == settings[1]  # what is not given may be a parent's


def _is_as_trained(job: Job) -> bool:
    """False if somebody has trained the job's run further, with other settings."""
    run = RunFolder(job.folder)
    try:
        kept = run.config()
        changed = changed_keys(kept, with_checkpoint(job.config, kept))
    except InputError:  # not begun, or of another version
        return not run.config_file.exists()
    settled = {"train.device", "train.monitor", *(["train.max_updates"] if kept.train.max_epochs else [])}
    return not any(
        key.startswith(("model.", "tokenizer.", "train.")) and key not in settled for key in changed
    )


def _last_line(log: Path) -> str:
    """The last line of a job's log; progress bars overwrite their own line."""
    lines = [
        line.strip()
        for line in log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").split("\n")
    ]
    return next((line for line in reversed(lines) if line), "nothing said")
