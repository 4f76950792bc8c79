"""Encoded sentence pairs in an Arrow file, memory-mapped: what is read is paged in, what is not costs nothing."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow

# Every record batch but the last has this many rows, so that row i is found without searching.
CHUNK = 10_000
_SCHEMA = pyarrow.schema([("src", pyarrow.list_(pyarrow.int32())), ("tgt", pyarrow.list_(pyarrow.int32()))])

EncodedPair = tuple[list[int], list[int]]


def write_pairs(path: Path, pairs: Iterable[EncodedPair]) -> str:
    """Write the pairs of piece ids (no BOS, no EOS) and give back a fingerprint of them."""
    fingerprint = hashlib.sha256()
    rows: list[EncodedPair] = []

    def flush() -> None:
        columns = [pyarrow.array([row[side] for row in rows], _SCHEMA.types[side]) for side in (0, 1)]
        for column in columns:
            fingerprint.update(column.offsets.to_numpy().tobytes())
            fingerprint.update(column.values.to_numpy().tobytes())
        writer.write_batch(pyarrow.record_batch(columns, schema=_SCHEMA))
        rows.clear()

    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, _SCHEMA) as writer:
        for pair in pairs:
            rows.append(pair)
            if len(rows) == CHUNK:
                flush()
        if rows:
            flush()
    return fingerprint.hexdigest()


class EncodedPairs:
    """Random access to the pairs of a file written by `write_pairs`.

    `src_lengths` and `tgt_lengths` count the EOS that batches add.
    """

    def __init__(self, path: Path) -> None:
        reader = pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
        self._chunks: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        for i in range(reader.num_record_batches):
            src, tgt = reader.get_batch(i).columns
            self._chunks.append(
                (src.offsets.to_numpy(), src.values.to_numpy(), tgt.offsets.to_numpy(), tgt.values.to_numpy())
            )
        self.src_lengths = self._lengths(0)
        self.tgt_lengths = self._lengths(2)

    def _lengths(self, column: int) -> np.ndarray:
        parts = [np.diff(chunk[column]).astype(np.int32) + 1 for chunk in self._chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self.src_lengths)

    def src(self, i: int) -> np.ndarray:
        """Source piece ids of pair i, without EOS."""
        offsets, values, _, _ = self._chunks[i // CHUNK]
        row = i % CHUNK
        return values[offsets[row] : offsets[row + 1]]

    def tgt(self, i: int) -> np.ndarray:
        """Target piece ids of pair i, without BOS and EOS."""
        _, _, offsets, values = self._chunks[i // CHUNK]
        row = i % CHUNK
        return values[offsets[row] : offsets[row + 1]]
