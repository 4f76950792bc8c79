"""Progress bars, times in words, and the estimate of a training's time."""

import io
import json
import os
import sys

import pytest

from tests.conftest import TINY
from tests.helpers.faults import cores, work_of_others
from transformer_mt import messages
from transformer_mt.config import Config
from transformer_mt.messages import duration, show_progress, time_left
from transformer_mt.run.loggers import TimeEstimate
from transformer_mt.run.progress import Progress


class Terminal(io.StringIO):
    columns = 80

    def isatty(self):
        return True

    def fileno(self):
        return 2


@pytest.fixture(autouse=True)
def width(monkeypatch):
    size = lambda descriptor: os.terminal_size((Terminal.columns, 24))  # noqa: E731
    monkeypatch.setattr("os.get_terminal_size", size)


def bars_after(patch, seconds):
    patch.setattr("transformer_mt.messages._DELAY_SECONDS", seconds)


def train_config(**settings):
    return Config.model_validate({**TINY, "train": {**TINY["train"], **settings}}).train


@pytest.mark.parametrize(
    "seconds, text",
    [
        (89, "89 s"), (90, "2 min"), (5_340, "89 min"), (12_000, "3 h 20 min"), (36_000, "10 h"),
        (172_800, "2 days 0 h"), (10 * 86_400, "10 days"),
    ],
)  # fmt: skip
def test_durations_have_at_most_two_units(seconds, text):
    assert duration(seconds) == text


def test_time_left_assumes_the_speed_so_far():
    assert time_left(2, 10, 3.0) == 12.0


def test_a_bar_is_only_drawn_on_a_terminal_and_after_two_seconds(monkeypatch):
    for stream, delay, columns, is_drawn in (
        (Terminal(), 0.0, 80, True),
        (Terminal(), 0.0, 0, True),  # of no known width, where tqdm prints nothing
        (io.StringIO(), 0.0, 80, False),
        (Terminal(), 2.0, 80, False),
    ):
        monkeypatch.setattr(Terminal, "columns", columns)
        monkeypatch.setattr(sys, "stderr", stream)
        bars_after(monkeypatch, delay)
        assert list(show_progress(range(3), "reading", 3)) == [0, 1, 2]
        assert ("reading" in stream.getvalue()) is is_drawn


def test_messages_do_not_write_over_a_bar(monkeypatch):
    """The bar's line is cleared before a message, and drawn again after it."""
    monkeypatch.setattr(sys, "stderr", Terminal())
    bars_after(monkeypatch, 0.0)
    with show_progress(None, "reading", 3) as bar:
        bar.update(1)
        messages.say("line 7: a warning")
        text = sys.stderr.getvalue()
    before, after = text.split("line 7: a warning")
    assert before.endswith("\r") and before.rpartition("\r")[0].endswith(" ") and "reading" in after


def test_the_time_of_a_training_is_said_once_enough_is_measured(monkeypatch):
    cores(monkeypatch, 2)
    work_of_others(monkeypatch, (0.0, 0.0), *[(1000.0, 1000.0)] * 9)
    train = train_config(max_updates=1000, validate_every=100)
    estimate = TimeEstimate()
    estimate.updated(1, 50.0)  # the first update compiles
    for step in range(2, 21):
        estimate.updated(1, 0.5)
        assert estimate.left(step, train) is None and estimate.announcement(step, train, True) == []
    estimate.updated(1, 0.5)
    assert estimate.announcement(21, train, on_cpu=True) == [
        "about 8 min for 979 more updates of 0.50 s, without the validations; "
        "other programs use 1.0 of 2 cores: alone about 4 min"
    ]
    assert estimate.announcement(21, train, on_cpu=True) == []
    estimate.validated(10.0)
    assert estimate.left(100, train) == pytest.approx(900 * 0.5 + 9 * 10.0)
    train = train_config(max_updates=1000, validate_every=300)  # after 300, 600, 900 and 1,000
    assert estimate.left(100, train) == pytest.approx(900 * 0.5 + 4 * 10.0)


def test_slow_updates_are_estimated_early_and_a_long_training_on_a_cpu_is_advised():
    train = train_config(max_updates=100_000)
    for on_cpu in (True, False):
        estimate = TimeEstimate()
        for _ in range(4):
            estimate.updated(1, 30.0)
        said = estimate.announcement(4, train, on_cpu)
        assert said[0] == "about 35 days for 99,996 more updates of 30.00 s, without the validations"
        advice = [line for line in said if "more than a day on this CPU; lower train.max_updates" in line]
        assert len(advice) == on_cpu


def test_progress_remembers_the_best_and_counts_the_stale():
    progress = Progress()
    for step, (score, is_best) in enumerate([(1.0, True), (3.0, True), (2.0, False), (3.0, False)], start=1):
        progress.step = step
        assert progress.validated(score) is is_best
    assert (progress.best_step, progress.best_score, progress.stale) == (2, 3.0, 2)
    copy = Progress()
    copy.load_state_dict(json.loads(json.dumps(progress.state_dict())))
    assert str(copy) == str(progress)  # not equal: the losses are no numbers


def steps_of_bests(validations, warmup=0):
    progress = Progress()
    for step, (score, loss) in enumerate(validations, start=1):
        progress.step = step
        progress.validated(score, loss, warmup)
    return progress


def test_equal_and_nearly_equal_scores_are_decided_by_the_loss():
    begun = steps_of_bests([(0.0, 6.5), (0.8, 6.3), (0.0, 6.4), (0.1, 6.2), (1.3, 6.9)])
    assert sorted(begun.best_steps()) == [1, 2, 4, 5]
    late = steps_of_bests([(30.0, 2.0), (30.05, 2.1), (30.2, 2.2), (30.15, 2.1), (30.08, 2.0), (30.11, 1.9)])
    # 30.08 is nearly equal to the last best, but no longer to the highest.
    assert sorted(late.best_steps()) == [1, 3, 4, 6]
    assert late.average_is_better(30.15, 1.85) and not late.average_is_better(30.15, 1.95)
    assert late.average_is_better(30.11, 1.9) and not late.average_is_better(30.0, 1.0)


def test_validations_in_the_warm_up_use_up_no_patience():
    flat = [(0.0, 6.0)] * 5
    assert steps_of_bests(flat).stale == 4
    assert steps_of_bests(flat, warmup=3).stale == 2
