"""Weights of corpora: which rows an epoch uses, and how often."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.data.batches.batching import Mixture, effective_weights


def test_weights_of_one_use_each_row_once_in_the_order_of_the_corpora():
    assert Mixture([3, 2], [1.0, 1.0], seed=1).rows(0) is None


def test_a_half_covers_every_pair_in_two_epochs():
    mixture = Mixture([10, 7], [0.5, 2.0], seed=1)
    first, second = mixture.rows(0), mixture.rows(1)
    assert Counter(np.concatenate([first, second]).tolist()) == {
        **dict.fromkeys(range(10), 1),
        **dict.fromkeys(range(10, 17), 4),
    }
    assert sorted(first.tolist()) != sorted(second.tolist())


@given(st.floats(0.01, 5.0), st.integers(1, 60), st.integers(1, 9))
def test_after_some_epochs_each_pair_was_used_as_often_as_its_weight_says(weight, size, epochs):
    mixture = Mixture([4, size], [1.0, weight], seed=3)
    rows = [mixture.rows(epoch) for epoch in range(epochs)]
    rows = [np.arange(4 + size) if row is None else row for row in rows]
    counts = Counter(np.concatenate(rows).tolist())
    assert all(counts[row] == epochs for row in range(4))
    uses = [counts[row] for row in range(4, 4 + size)]
    assert max(uses) - min(uses) <= 1
    assert sum(uses) == pytest.approx(weight * size * epochs, abs=1 + 1e-6 * size)


def test_an_epoch_depends_on_the_seed_and_its_number_alone():
    one, again = Mixture([50], [0.3], seed=1), Mixture([50], [0.3], seed=1)
    one.rows(0), one.rows(1)
    assert one.rows(7).tolist() == again.rows(7).tolist()
    assert one.rows(7).tolist() != Mixture([50], [0.3], seed=2).rows(7).tolist()


def test_temperature_raises_small_corpora():
    assert effective_weights([1.0, 1.0, 2.0], [100, 25, 100], 1.0) == [1.0, 1.0, 2.0]
    assert effective_weights([1.0, 1.0, 2.0], [100, 25, 100], 2.0) == [1.0, 2.0, 2.0]
    assert effective_weights([1.0, 1.0], [100, 25], 100.0)[1] == pytest.approx(4.0, rel=0.02)
    assert effective_weights([1.0, 1.0], [100, 0], 5.0) == [1.0, 0.0]
