import numpy as np

from transformer_mt.data.changes.change import random_bits, uniforms

ROWS = np.array([0, 1, 70_000])


def test_the_numbers_never_change():
    """A run that an earlier version interrupted resumes with the same dropped subwords and typos."""
    bits = [0x2F94368E6950BA1C, 0xD9FA770E666DA7A2, 0x57047708AF13E7F2]
    assert random_bits(3, 2, ROWS, 5).tolist() == bits
    assert uniforms(3, 2, ROWS, 5).tolist() == [number / 2**64 for number in bits]


def test_each_row_seed_epoch_and_number_has_its_own():
    numbers = [random_bits(seed, epoch, ROWS, i) for seed in (1, 2) for epoch in (0, 1) for i in (0, 1)]
    assert np.unique(numbers).size == 8 * len(ROWS)
