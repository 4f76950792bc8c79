"""What a test makes happen inside a training or a preparation, where no command could ask for it.

Tests do not reach into our modules themselves: when a room moves, only this file follows.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer_mt.companion import companions


@contextmanager
def before_each_update(action: Callable[..., object]) -> Iterator[None]:
    """Call `action(number, model, batches, rate)` before each update, the first of which is number 1.

    What it raises ends the training there. That is how a kill, a signal, or a compiler that fails at a
    certain update is tested.
    """
    from transformer_mt.update.step import Updater

    update, numbers = Updater.update, count(1)

    def watched(self: Any, batches: Any, rate: float, *rest: Any) -> Any:
        action(next(numbers), self._objective.model, batches, rate)
        return update(self, batches, rate, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Updater, "update", watched)
        yield


@contextmanager
def validations(change: Callable[..., Any]) -> Iterator[None]:
    """Let `change(validate, *arguments)` take the place of each validation of a training."""
    from transformer_mt.run import validation

    validate = validation.validate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "validate", lambda *words: change(validate, *words))
        yield


@contextmanager
def before_preparation(action: Callable[[], object]) -> Iterator[None]:
    """Call `action()` between the checks of a training's folder and the preparation of its data."""
    from transformer_mt import training

    prepare = training.prepare_data
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "prepare_data", lambda *words: (action(), prepare(*words))[1])
        yield


@contextmanager
def memory_for(positions: int) -> Iterator[None]:
    """Let batches of more positions run out of memory in training."""
    from transformer_mt.update.step import Objective

    forward = Objective.forward

    def scarce(self: Any, batch: Any) -> Any:
        loss = forward(self, batch)
        if self.model.training and batch.num_positions > positions:
            raise torch.OutOfMemoryError("no room")
        return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Objective, "forward", scarce)
        yield


@contextmanager
def results_read_later() -> Iterator[None]:
    """Let the loop read results of updates as it does on a GPU: many at a time, when they are needed."""
    from transformer_mt import training

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "is_asynchronous", lambda device: True)
        yield


def small_blocks(patch: pytest.MonkeyPatch, **sizes: int) -> None:
    """Prepare data in blocks as small as a test's corpus asks for, until the test ends: `rows` of a block,
    `share` of keys in blocks, `sample` of rows that the vocabulary is learnt from, `aligned` rows that an
    aligner learns from.
    """
    from transformer_mt.data.preparation import clean, encode_blocks, training_links

    places: dict[str, tuple[Any, str]] = {
        "rows": (clean, "BLOCK"),
        "share": (clean, "_SHARE"),
        "sample": (encode_blocks, "ROWS"),
        "aligned": (training_links, "ALIGNED"),
    }
    for name, size in sizes.items():
        module, constant = places[name]
        patch.setattr(module, constant, size)


def cores(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the machine have so many cores until the test ends."""
    patch.setattr("os.sched_getaffinity", lambda process: range(number), raising=False)


def loss_chunks(patch: pytest.MonkeyPatch, tokens: int) -> None:
    """Compute losses of so many tokens at a time, until the test ends."""
    from transformer_mt.update import chunked_loss

    patch.setattr(chunked_loss, "TOKENS_ON_CPU", tokens)


def translated_at_a_time(patch: pytest.MonkeyPatch, lines: int) -> None:
    """Translate texts in chunks of so many lines, until the test ends."""
    from transformer_mt import translator

    for name in ("_LEAST", "_MOST"):
        patch.setattr(translator, name, lines)


def instead_of_training(patch: pytest.MonkeyPatch, train: Callable[..., Any]) -> None:
    """Let `train(config, folder)` take the place of a student's training, until the test ends."""
    from transformer_mt.companions.lab import distill

    patch.setattr(distill, "train", train)


def least_lines_for_workers(patch: pytest.MonkeyPatch, lines: int) -> None:
    """Let so few lines be worth the start of worker processes, until the test ends."""
    from transformer_mt.translation.engines import divided_engine

    patch.setattr(divided_engine, "_LEAST_LINES", lines)


def killed_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """Let translations into a file end as if killed after their last line, until the test ends: what a
    resumption needs stays.
    """
    from transformer_mt.cli import translate

    patch.setattr(translate, "end_record", lambda output: None)
    if "documents" in companions():
        from transformer_mt.companions.documents.translate_file import _Output

        patch.setattr(_Output, "end", lambda self: None)


def update_seconds(patch: pytest.MonkeyPatch, seconds: Callable[..., float]) -> None:
    """Let an update of the model of a new config take `seconds(config)`, until the test ends."""
    from transformer_mt.companions.wizard import write

    patch.setattr(write, "seconds_per_update", lambda config, *_: seconds(config))


def pairs_in_files(patch: pytest.MonkeyPatch, number: int) -> None:
    """Let the user's files have so many pairs, until the test ends."""
    from dataclasses import replace

    from transformer_mt.companions.wizard import user_files

    read = user_files._read
    patch.setattr(user_files, "_read", lambda *words: replace(read(*words), pairs=number))


def system_memory(patch: pytest.MonkeyPatch, files: dict[str, list[str]], resident: int = 0) -> None:
    """Let Linux's files on memory have these lines, until the test ends, and this process hold so much."""
    files["/proc/self/status"] = [f"VmRSS: {resident // 1024} kB"]

    def read_text(path: Path, *rest: Any, usual: Any = Path.read_text, **options: Any) -> str:
        if not str(path).startswith(("/proc/", "/sys/")):
            return str(usual(path, *rest, **options))
        if str(path) not in files:
            raise FileNotFoundError(str(path))
        return "\n".join(files[str(path)])

    patch.setattr(Path, "read_text", read_text)


def work_of_others(patch: pytest.MonkeyPatch, *readings: tuple[float, float]) -> None:
    """Let the clock and the seconds that other programs worked be these, one reading after the other."""
    from transformer_mt import processes

    remaining = iter(readings)
    patch.setattr(processes, "_used_by_others", lambda: next(remaining))


def parts_of_one_position(patch: pytest.MonkeyPatch) -> None:
    """Let threads share out batches however small, until the test ends."""
    from transformer_mt.update import acceleration as compiled

    patch.setattr(compiled, "_MIN_POSITIONS", 1)


def budgets(patch: pytest.MonkeyPatch, answer: int) -> None:
    """Let the search for the largest batch measure as usual and find `answer`, until the test ends."""
    from transformer_mt.run import batch_budget

    patch.setattr(
        batch_budget,
        "largest_budget",
        lambda measure, limit, least, update_tokens: (measure(least), measure(2 * least), answer)[-1],
    )


def no_node(patch: pytest.MonkeyPatch, translations: list[str]) -> None:
    """Let Node be missing until the test ends, and onnxruntime give these translations."""
    from transformer_mt.companions.browser import to_browser

    patch.setattr(to_browser.shutil, "which", lambda name: None)
    patch.setattr(to_browser.ToOnnx, "translate", lambda page, folder, sentences: translations)


def no_search_for_misaligned_pairs(patch: pytest.MonkeyPatch) -> None:
    """Let `inspect` look for no misaligned pairs until the test ends: that takes most of its time."""
    from transformer_mt.companions.inspection import inspect

    patch.setattr(inspect, "find_misaligned", lambda blocks, languages, rows: None)


def memory_of_models_unknown(patch: pytest.MonkeyPatch) -> None:
    """Let a server neither measure nor collect its models' memory until the test ends: with as many modules
    as tests import, that takes long.
    """
    from transformer_mt.companions.serving import models

    patch.setattr(models, "resident_bytes", lambda: 0)
    patch.setattr(models.gc, "collect", lambda: 0)


def students_measured_here(patch: pytest.MonkeyPatch) -> None:
    """Let `distill` measure models in this process until the test ends, instead of one for each."""
    from transformer_mt.companions.lab import distill

    patch.setattr(distill, "_measure_alone", distill._measure)
