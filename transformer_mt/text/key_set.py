"""Hashes of texts, and sets of them that fit the memory."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.text.hashes import splitmix64

MOST_EXACT = 40_000_000
"""Keys that are kept whole, 8 bytes each: both sides of 20 million pairs."""
_BITS_OF_A_KEY, _PLACES = 16, 8
FILTER_ERROR = 0.0006
"""The share of other sentences that a filter takes for its own: (1 - exp(-8/16))^8."""
_AT_ONCE = 2**18


@dataclass(frozen=True)
class KeySet:
    """Keys as `sentence_key` gives them."""

    exact: np.ndarray
    """In order, each once (uint64)."""
    filters: tuple[np.ndarray, ...] = ()
    """Bloom filters (1970): the bits of each key's places are set (uint8)."""

    @classmethod
    def of(cls, keys: Iterable[int]) -> "KeySet":
        """The set of these keys."""
        array = np.fromiter(keys, np.uint64)
        return cls.of_arrays([array], len(array))

    @classmethod
    def of_arrays(cls, arrays: Iterable[np.ndarray], count: int, most_exact: int = MOST_EXACT) -> "KeySet":
        """The `count` keys of all arrays; of more than `most_exact` a filter, into which one array is read at
        a time.
        """
        if count > most_exact:
            return cls(_NOTHING, (_filter(arrays, count),))
        keys = np.sort(np.concatenate([_NOTHING, *arrays]))
        return cls(
            keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        )  # np.unique took 30 times as long

    def __or__(self, other: "KeySet") -> "KeySet":
        """The keys of both."""
        exact = KeySet.of_arrays((self.exact, other.exact), len(self.exact) + len(other.exact))
        filters = (*self.filters, *other.filters, *exact.filters)
        known = {hashlib.sha256(bits.data).digest(): bits for bits in filters}
        return KeySet(exact.exact, tuple(known.values()))

    def has(self, keys: Sequence[int] | np.ndarray) -> np.ndarray:
        """For each key whether it is in the set."""
        wanted = np.asarray(keys, np.uint64)
        result = np.zeros(len(wanted), bool)
        if len(self.exact):
            places = np.searchsorted(self.exact, wanted).clip(max=len(self.exact) - 1)
            result |= self.exact[places] == wanted
        for bits in self.filters:
            places = _places(wanted, 8 * len(bits))
            result |= (bits[places >> 3] >> (places & 7).astype(np.uint8) & 1).all(axis=0)
        return result

    @property
    def is_empty(self) -> bool:
        return not (len(self.exact) or self.filters)


_NOTHING = np.empty(0, np.uint64)
NO_KEYS = KeySet(_NOTHING)


def _filter(arrays: Iterable[np.ndarray], count: int) -> np.ndarray:
    bits = np.zeros(-(-count * _BITS_OF_A_KEY // 8), np.uint8)
    for keys in arrays:
        for begin in range(0, len(keys), _AT_ONCE):
            places = np.sort(_places(np.asarray(keys[begin : begin + _AT_ONCE]), 8 * len(bits)), axis=None)
            byte, bit = places >> 3, np.uint8(1) << (places & 7).astype(np.uint8)
            first = np.flatnonzero(np.append(True, byte[1:] != byte[:-1])[: len(byte)])
            # np.bitwise_or.at took three times as long.
            bits[byte[first]] |= np.bitwise_or.reduceat(bit, first)
    return bits


def _places(keys: np.ndarray, size: int) -> np.ndarray:
    """The bits (8, K) of K keys in a Bloom filter of `size` bits (Kirsch and Mitzenmacher 2006)."""
    second = splitmix64(keys) | np.uint64(1)
    steps = np.arange(_PLACES, dtype=np.uint64)[:, None]
    return ((keys + steps * second) % np.uint64(size)).astype(np.int64)
