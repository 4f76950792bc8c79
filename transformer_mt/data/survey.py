"""Which rows of a corpus are kept, found in one pass: their fates go to a file, so that memory does not grow with them."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from transformer_mt.data.cleaning import FATES, KEPT, fate, pair_key
from transformer_mt.data.corpus import Pair

# Keys are sorted share by share, each by itself in memory: of a billion pairs, 250 MB at a time.
_SHARES = 64
_ROWS = 2**16

_KEY = np.dtype([("key", np.uint64), ("row", np.uint64)])


class Survey:
    """The fate of each row, in a folder; whole once `finish` was called."""

    def __init__(self, folder: Path, held_out: set[int], remove_duplicates: bool) -> None:
        self._folder, self._held_out, self._remove_duplicates = folder, held_out, remove_duplicates
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def fates_file(self) -> Path:
        return self._folder / "fates.u8"

    def walk(self, pairs: Iterable[Pair]) -> Iterator[tuple[int, Pair]]:
        """Write down the fate of each row and give out (row, stripped pair) of those kept so far: duplicates are known
        only at the end.
        """
        shares = [(self._folder / f"keys-{i}").open("wb") for i in range(_SHARES)]
        keys, rows = np.empty(_ROWS, np.uint64), np.empty(_ROWS, np.uint64)
        fates = bytearray()
        waiting = 0

        def write_keys() -> None:
            share = keys[:waiting] % np.uint64(_SHARES)
            for i, file in enumerate(shares):
                mine = share == i
                table = np.empty(int(mine.sum()), _KEY)
                table["key"], table["row"] = keys[:waiting][mine], rows[:waiting][mine]
                file.write(table.tobytes())

        try:
            with (self._folder / "fates.tmp").open("wb") as file:
                for row, (src, tgt) in enumerate(pairs):
                    src, tgt = src.strip(), tgt.strip()
                    key = pair_key((src, tgt))
                    reason = fate(src, tgt, key in self._held_out)
                    fates.append(FATES.index(reason))
                    if reason == KEPT:
                        keys[waiting], rows[waiting] = key, row
                        waiting += 1
                        yield row, (src, tgt)
                    if len(fates) == _ROWS:
                        write_keys()
                        file.write(fates)
                        fates.clear()
                        waiting = 0
                write_keys()
                file.write(fates)
        finally:
            for share_file in shares:
                share_file.close()

    def finish(self) -> np.ndarray:
        """The fate of each row, an index into FATES, duplicates found; memory-mapped."""
        temporary = self._folder / "fates.tmp"
        fates = _map(temporary, "r+")
        for i in range(_SHARES):
            path = self._folder / f"keys-{i}"
            if self._remove_duplicates:
                table = np.fromfile(path, _KEY)
                order = np.argsort(table["key"], kind="stable")  # rows are in order already: the first stays the first
                repeated = table["key"][order][1:] == table["key"][order][:-1]
                fates[table["row"][order[1:][repeated]]] = FATES.index("duplicate")
            path.unlink()
        if isinstance(fates, np.memmap):
            fates.flush()
        temporary.rename(self.fates_file)
        return self.fates()

    def fates(self) -> np.ndarray:
        """What `finish` gave."""
        return _map(self.fates_file, "r")


def _map(path: Path, mode: str) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode)  # type: ignore[call-overload]
