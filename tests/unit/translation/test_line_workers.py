"""The work on lines in other processes: the same translations, in order, and errors in one line."""

import os
import signal
from dataclasses import replace

import pytest

from transformer_mt import Translator
from transformer_mt.corpora import toy
from transformer_mt.errors import InputError, WorkError
from transformer_mt.translation import line_workers, translator


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
    monkeypatch.setattr(line_workers, "_LEAST_LINES", 10)
    monkeypatch.setattr(line_workers, "usable_cores", lambda: 4)
    return loaded


def alone(translator_, monkeypatch):
    monkeypatch.setattr(translator, "num_workers", lambda *_: 0)
    return translator_


@pytest.mark.parametrize("options", [{}, {"n_best": 2}, {"align": True}, {"protect": "[0-9]+"}], ids=str)
def test_the_translations_are_the_same_and_in_order(of_gpu, lines, options, monkeypatch):
    calls, search = [], of_gpu.engine.search
    monkeypatch.setattr(
        of_gpu.engine, "search", lambda *arguments: (calls.append(len(arguments[0])), search(*arguments))[1]
    )
    options["max_length"] = 12
    started = []
    divide = translator.translate_in_workers
    monkeypatch.setattr(translator, "translate_in_workers", lambda *a: (started.append(a[-1]), divide(*a))[1])
    divided = of_gpu.translate(lines, **options)
    assert started == [3]
    assert calls[0] > len(lines) / 2  # one search for the lines of all processes
    whole = alone(of_gpu, monkeypatch).translate(lines, **options)
    assert started == [3]
    for found, expected in zip(divided, whole, strict=True):
        assert found == replace(
            expected, score=pytest.approx(expected.score, abs=1e-5),
            log_prob=pytest.approx(expected.log_prob, abs=1e-5), n_best=found.n_best,
        )  # fmt: skip
        assert [c.translation for c in found.n_best] == [c.translation for c in expected.n_best]


def test_errors_of_a_process_and_of_the_engine_are_those_of_one(of_gpu, lines, monkeypatch):
    with pytest.raises(InputError, match="must be one of the model's tags|has no tag"):
        of_gpu.translate(lines, tag="<nobody>")

    def broken(*arguments):
        raise WorkError("the GPU is gone")

    monkeypatch.setattr(of_gpu.engine, "search", broken)
    with pytest.raises(WorkError, match="the GPU is gone"):
        of_gpu.translate(lines)


def test_the_end_of_a_process_is_one_line(of_gpu, lines, monkeypatch):
    parent = os.getpid()

    def killed(self, *arguments):
        assert os.getpid() != parent
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(line_workers._AskingEngine, "ask", killed)
    with pytest.raises(WorkError, match="a worker process has ended"):
        of_gpu.translate(lines)


def test_an_error_that_nobody_expected_is_one_line(of_gpu, lines, monkeypatch):
    monkeypatch.setattr(line_workers._AskingEngine, "ask", lambda *_: 1 / 0)
    with pytest.raises(WorkError, match="a worker process failed: ZeroDivisionError"):
        of_gpu.translate(lines)


def test_few_lines_and_lines_that_need_others_stay_in_this_process(of_gpu, lines, monkeypatch):
    monkeypatch.setattr(translator, "translate_in_workers", None)  # would raise
    of_gpu.translate(lines[:5], max_length=12)
    of_gpu.translate(lines, max_length=12, prefixes=[""] * (len(lines) - 1) + ["Der"])
    of_gpu.engine.is_on_cpu = True
    of_gpu.translate(lines, max_length=12)
