"""Files of values in sections, one of which is read without the others."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from transformer_mt.data.preparation.store import Store

_BOUND = np.dtype(np.uint64)
_AT_ONCE = 16
"""Requests."""


class Sections:
    """Files of values of one kind: the bounds of the sections, then the values."""

    def __init__(self, store: Store, kind: np.dtype, count: int) -> None:
        self._store, self._kind = store, kind
        self._header = _BOUND.itemsize * (count + 1)

    def write(self, name: str, values: np.ndarray, bounds: np.ndarray) -> None:
        """Write values in the order of their sections; `bounds` are how many stand before each section, and
        how many there are.
        """
        content = bounds.astype(_BOUND).tobytes() + values.astype(self._kind).tobytes()
        self._store.write(name, content)

    def read(self, names: Iterable[str], section: int) -> list[np.ndarray]:
        """The values of a section of several files, which are asked for together: a store far away answers
        late.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(partial(self._read, section), names))

    def _read(self, section: int, name: str) -> np.ndarray:
        size = _BOUND.itemsize
        ends = self._store.read(name, size * section, size * (section + 2))
        begin, end = (np.frombuffer(ends, _BOUND).astype(int) * self._kind.itemsize + self._header).tolist()
        return np.frombuffer(self._store.read(name, begin, end), self._kind)

    def read_all(self, name: str) -> np.ndarray:
        """The values of all sections."""
        return np.frombuffer(self._store.read(name)[self._header :], self._kind)

    def num_values(self, num_bytes: int) -> int:
        """The values of a file of so many bytes."""
        return (num_bytes - self._header) // self._kind.itemsize
