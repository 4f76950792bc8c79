"""Encoded sentence pairs in Arrow files, memory-mapped: what is read is paged in, what is not
costs nothing.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow

_SHORT = 1 << 16
"""Ids below it are written with 16 bits: that halves the files."""


def row_kind(count: int) -> type[np.signedinteger]:
    """The integers that number `count` rows: of 32 bits while they suffice."""
    return np.int32 if count <= 1 << 31 else np.int64


@dataclass(frozen=True)
class Column:
    """One side of a chunk: all its piece ids in one array."""

    offsets: np.ndarray
    """(rows + 1,) int32: row i is values[offsets[i]:offsets[i + 1]]."""
    values: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]] | Sequence[np.ndarray]) -> "Column":
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        if rows and all(isinstance(row, np.ndarray) for row in rows):
            return cls(offsets, np.concatenate(rows))
        return cls(offsets, np.fromiter(chain.from_iterable(rows), np.int32, count=int(offsets[-1])))

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def row(self, i: int) -> np.ndarray:
        return self.values[self.offsets[i] : self.offsets[i + 1]]


Chunk = tuple[Column, Column]


def write_chunks(file: Path | pyarrow.NativeFile, chunks: Iterable[Chunk], num_ids: int = _SHORT + 1) -> str:
    """Write chunks of (source, target) ids below `num_ids`, without BOS and EOS. Returns a fingerprint of the
    pairs, whatever the chunks and the bits of an id.
    """
    kind = pyarrow.uint16() if num_ids <= _SHORT else pyarrow.int32()
    schema = pyarrow.schema([(side, pyarrow.list_(kind)) for side in ("src", "tgt")])
    fingerprints = [hashlib.sha256() for _ in range(4)]
    sink = str(file) if isinstance(file, Path) else file
    with pyarrow.ipc.new_file(sink, schema) as writer:
        for src, tgt in chunks:
            parts = (src.lengths, src.values, tgt.lengths, tgt.values)
            for fingerprint, part in zip(fingerprints, parts):
                fingerprint.update(np.ascontiguousarray(part, np.int32).tobytes())
            arrays = [
                pyarrow.ListArray.from_arrays(side.offsets, pyarrow.array(side.values).cast(kind))
                for side in (src, tgt)
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
    return hashlib.sha256(b"".join(fingerprint.digest() for fingerprint in fingerprints)).hexdigest()


class EncodedPairs:
    """Random access to the pairs of files written by `write_chunks`, one file after the other.

    `src_lengths` and `tgt_lengths` count the EOS that batches add.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._chunks: list[Chunk] = []
        self._files: list[tuple[np.ndarray, np.ndarray]] = []  # as offsets of 32 bits, and as ids
        addresses: list[list[int]] = []
        for number, path in enumerate(paths):
            file = pyarrow.memory_map(str(path))
            reader = pyarrow.ipc.open_file(file)
            file.seek(0)
            buffer = file.read_buffer()
            kind = np.dtype(reader.schema.field(0).type.value_type.to_pandas_dtype())
            numbers = np.frombuffer(buffer, np.int32, file.size() // 4)
            ids = np.frombuffer(buffer, kind, file.size() // kind.itemsize)
            self._files.append((numbers, ids))
            for i in range(reader.num_record_batches):
                src, tgt = (
                    Column(c.offsets.to_numpy(), c.values.to_numpy()) for c in reader.get_batch(i).columns
                )
                self._chunks.append((src, tgt))
                arrays = src.offsets, src.values, tgt.offsets, tgt.values
                begin = _address(numbers)
                addresses.append([number, *((_address(a) - begin) // a.itemsize for a in arrays)])
        self._addresses = np.array(addresses, np.int64).reshape(-1, 5)
        self.src_lengths, self.tgt_lengths = self._lengths(0), self._lengths(1)
        sizes = [len(src.offsets) - 1 for src, _ in self._chunks]
        self._starts = np.cumsum([0, *sizes])[:-1].tolist()
        self._first_rows = np.array(self._starts, np.int64)

    def _lengths(self, side: int) -> np.ndarray:
        parts = [chunk[side].lengths.astype(np.int32) + 1 for chunk in self._chunks]
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def __len__(self) -> int:
        return len(self.src_lengths)

    def src(self, i: int) -> np.ndarray:
        """Source piece ids of pair i, without EOS."""
        return self._row(0, i)

    def tgt(self, i: int) -> np.ndarray:
        """Target piece ids of pair i, without BOS and EOS."""
        return self._row(1, i)

    def columns(self, side: int) -> Iterator[Column]:
        """All sources (0) or targets (1), a part of the rows after the other."""
        for chunk in self._chunks:
            yield Column(chunk[side].offsets, chunk[side].values.astype(np.int32, copy=False))

    def gathered(self, side: int, rows: np.ndarray) -> Column:
        """The ids of the sources (0) or targets (1) of some rows, without a loop over rows or chunks, which
        would hold Python's lock.
        """
        chunk = np.searchsorted(self._first_rows, rows, "right") - 1
        file, offsets_at, values_at = self._addresses[chunk][:, [0, 1 + 2 * side, 2 + 2 * side]].T
        offsets_at = offsets_at + rows - self._first_rows[chunk]
        offsets, ends = np.zeros(len(rows) + 1, np.int64), np.zeros(len(rows), np.int64)
        starts = np.zeros(len(rows), np.int64)
        for number in np.unique(file):
            is_here, numbers = file == number, self._files[number][0]
            starts[is_here], ends[is_here] = (numbers[offsets_at[is_here] + i] for i in (0, 1))
        lengths = ends - starts
        np.cumsum(lengths, out=offsets[1:])
        index = np.repeat(values_at + starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        values, files = np.empty(offsets[-1], np.int32), np.repeat(file, lengths)
        for number in np.unique(file):
            is_here = files == number
            values[is_here] = self._files[number][1][index[is_here]]
        return Column(offsets, values)

    def _row(self, side: int, i: int) -> np.ndarray:
        chunk = bisect_right(self._starts, i) - 1
        return self._chunks[chunk][side].row(i - self._starts[chunk]).astype(np.int32, copy=False)


def _address(array: np.ndarray) -> int:
    """Address of its first byte in memory."""
    return int(array.__array_interface__["data"][0])
