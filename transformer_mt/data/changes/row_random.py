"""Random numbers as functions of the seed, the epoch and the row: a resumed run has the same."""

import numpy as np

from transformer_mt.text.hashes import splitmix64

# Large odd numbers without a pattern.
A, B, C = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def random_bits(seed: int, epoch: int, rows: np.ndarray, number: int) -> np.ndarray:
    """(R,) 64 random bits of each row; another `number` gives others."""
    key = np.uint64((seed * int(B) + epoch * int(C)) % 2**64)
    return splitmix64(splitmix64(rows.astype(np.uint64) * A + key) + np.uint64(number * int(B) % 2**64))


def uniforms(seed: int, epoch: int, rows: np.ndarray, number: int) -> np.ndarray:
    """(R,) from 0 to 1."""
    return random_bits(seed, epoch, rows, number) / 2.0**64
