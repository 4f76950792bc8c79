"""The work on lines in other processes: the same translations, in order, and errors in one line."""

import os
import signal
from dataclasses import replace

import pytest

from tests.helpers.faults import cores, least_lines_for_workers
from transformer_mt import Translator
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError


@pytest.fixture
def lines():
    texts = [source for source, _ in toy.generate("test", 60)]
    return [*texts, "", "  ", "Mail to a.b@example.org costs 3.50. The dog sleeps.", *texts[:7]]


@pytest.fixture
def of_gpu(untrained_run, monkeypatch):
    """A translator whose engine passes for one on a GPU, which pays for three processes at any number of
    lines.
    """
    loaded = Translator.load(untrained_run(), device="cpu", engine="torch", decode={"beam": 2})
    loaded.engine.is_on_cpu = False
    least_lines_for_workers(monkeypatch, 10)
    cores(monkeypatch, 4)
    return loaded


def searched_by(translator, search):
    """Let `search(search of the engine, requests, ...)` take the place of the engine's search."""

    class Other(type(translator.engine)):
        def search(self, *arguments):
            return search(super().search, *arguments)

    translator.engine.__class__ = Other


def decoded_in_workers_by(translator, action):
    """Let worker processes do `action()` where they turn ids into text."""
    own = os.getpid()

    class Other(type(translator.tokenizer)):
        def decode_tgt(self, ids):
            if os.getpid() != own:
                action()
            return super().decode_tgt(ids)

    translator.tokenizer.__class__ = Other


@pytest.mark.parametrize("options", [{"n_best": 2, "align": True}, {"protect": "[0-9]+"}], ids=str)
def test_the_translations_are_the_same_and_in_order(of_gpu, lines, options):
    calls = []

    def watched(search, requests, *rest):
        calls.append((os.getpid(), len(requests)))
        return search(requests, *rest)

    searched_by(of_gpu, watched)
    options["max_length"] = 12
    divided = of_gpu.translate(lines, **options)
    process, size = calls[0]
    assert process == os.getpid() and size > len(lines) / 2  # one search for the lines of all processes
    of_gpu.engine.is_on_cpu = True
    whole = of_gpu.translate(lines, **options)
    for found, expected in zip(divided, whole, strict=True):
        assert found == replace(
            expected, score=pytest.approx(expected.score, abs=1e-5),
            log_prob=pytest.approx(expected.log_prob, abs=1e-5), n_best=found.n_best,
        )  # fmt: skip
        assert [c.translation for c in found.n_best] == [c.translation for c in expected.n_best]


def test_errors_of_a_process_and_of_the_engine_are_those_of_one(of_gpu, lines):
    with pytest.raises(InputError, match="must be one of the model's tags|has no tag"):
        of_gpu.translate(lines, tag="<nobody>")

    def broken(*arguments):
        raise WorkError("the GPU is gone")

    searched_by(of_gpu, broken)
    with pytest.raises(WorkError, match="the GPU is gone"):
        of_gpu.translate(lines)


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "a worker process has ended"),
        (lambda: 1 / 0, "a worker process failed: ZeroDivisionError"),
    ],
    ids=["killed", "error"],
)
def test_the_end_of_a_process_and_an_error_nobody_expected_are_one_line(of_gpu, lines, action, message):
    decoded_in_workers_by(of_gpu, action)
    with pytest.raises(WorkError, match=message):
        of_gpu.translate(lines, max_length=12)


def test_few_lines_and_lines_that_need_others_stay_in_this_process(of_gpu, lines):
    decoded_in_workers_by(of_gpu, lambda: 1 / 0)
    of_gpu.translate(lines[:5], max_length=12)
    of_gpu.translate(lines, max_length=12, prefixes=[""] * (len(lines) - 1) + ["Der"])
    of_gpu.engine.is_on_cpu = True
    of_gpu.translate(lines, max_length=12)
