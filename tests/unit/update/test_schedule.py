"""Learning rates as functions of the step."""

import math

import pytest

from transformer_mt.config import TrainConfig
from transformer_mt.update.schedule import learning_rate


def rates(**config):
    train = TrainConfig(learning_rate=0.5, warmup=10, max_updates=100, **config)
    return [learning_rate(step, train) for step in range(1, 101)]


def test_inverse_sqrt_is_the_papers_scaled_to_its_peak():
    """Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup^-1.5)."""
    paper = [min(step**-0.5, step * 10**-1.5) for step in range(1, 101)]
    peak = max(paper)
    assert rates(schedule="inverse_sqrt") == pytest.approx([0.5 * rate / peak for rate in paper])


@pytest.mark.parametrize(
    "schedule, middle", [("linear", 0.5 * 46 / 91), ("cosine", 0.25 * (1 + math.cos(math.pi * 45 / 91)))]
)
def test_linear_and_cosine_rise_fall_and_end_just_above_zero(schedule, middle):
    values = rates(schedule=schedule)
    assert values[:10] == pytest.approx([0.05 * step for step in range(1, 11)])
    assert values[54] == pytest.approx(middle)
    assert 0 < values[-1] < 0.01
    assert values[9:] == sorted(values[9:], reverse=True)


def test_constant_stays():
    assert rates(schedule="constant") == pytest.approx([0.05 * min(step, 10) for step in range(1, 101)])


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "linear", "cosine", "constant"])
def test_no_warmup_starts_at_the_peak(schedule):
    train = TrainConfig(learning_rate=0.5, warmup=0, max_updates=100, schedule=schedule)
    assert learning_rate(1, train) == pytest.approx(0.5, rel=0.02)
