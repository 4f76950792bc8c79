"""Encoded sentence pairs in Arrow files, memory-mapped: what is read is paged in, what is not
costs nothing.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow

_SHORT = 1 << 16
"""With at most this many ids, each is written with 16 bits, which halves the files."""
_KEPT = b"kept"


def row_kind(count: int) -> type[np.signedinteger]:
    """The integer type for row numbers below `count`, with 32 bits if they suffice."""
    return np.int32 if count <= 1 << 31 else np.int64


@dataclass(frozen=True)
class Column:
    """One side of a chunk: all its token ids in one array."""

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

    def part(self, begin: int, end: int) -> "Column":
        """Rows `begin` to `end` - 1."""
        offsets = self.offsets[begin : end + 1]
        values = self.values[offsets[0] : offsets[-1]].astype(np.int32, copy=False)
        return Column(offsets - offsets[0], values)


Chunk = tuple[Column, Column]


def write_chunks(
    file: Path | pyarrow.NativeFile,
    chunks: Iterable[Chunk],
    num_ids: int = _SHORT + 1,
    is_kept: np.ndarray | None = None,
) -> str:
    """Write chunks of (source, target) ids below `num_ids`, without BOS and EOS; `is_kept` marks
    the rows in `chunks` among all rows that were read, by default all. Returns a fingerprint of the pairs
    that does not depend on the division into chunks or the bits per id.
    """
    kind = pyarrow.uint16() if num_ids <= _SHORT else pyarrow.int32()
    kept = None if is_kept is None else {_KEPT: np.packbits(is_kept).tobytes()}
    schema = pyarrow.schema([(side, pyarrow.list_(kind)) for side in ("src", "tgt")], kept)
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


def _column(column: pyarrow.ListArray) -> Column:
    return Column(column.offsets.to_numpy(), column.values.to_numpy())


class _File:
    """The chunks of one file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        file = pyarrow.memory_map(str(path))
        reader = pyarrow.ipc.open_file(file)
        file.seek(0)
        buffer = file.read_buffer()
        kind = np.dtype(reader.schema.field(0).type.value_type.to_pandas_dtype())
        self.offsets = np.frombuffer(buffer, np.int32, file.size() // 4)
        """The whole file, read as offsets; `ids` is the same file, read as ids."""
        self.ids = np.frombuffer(buffer, kind, file.size() // kind.itemsize)
        batches = (reader.get_batch(i).columns for i in range(reader.num_record_batches))
        self.chunks: list[Chunk] = [(_column(src), _column(tgt)) for src, tgt in batches]
        sizes = [len(src.offsets) - 1 for src, _ in self.chunks]
        self.first_rows = np.cumsum([0, *sizes])
        """Rows before each chunk; the last entry is the number of all rows."""
        self._kept: bytes | None = (reader.schema.metadata or {}).get(_KEPT)
        begin = _address(self.offsets)
        arrays = [(src.offsets, src.values, tgt.offsets, tgt.values) for src, tgt in self.chunks]
        addresses = [[(_address(a) - begin) // a.itemsize for a in parts] for parts in arrays]
        self._addresses = np.array(addresses, np.int64).reshape(-1, 4)

    @cached_property
    def rows_read(self) -> np.ndarray:
        """For each row, its number among all rows that were read."""
        if self._kept is None:
            return np.arange(self.first_rows[-1])
        return np.flatnonzero(np.unpackbits(np.frombuffer(self._kept, np.uint8)))

    def row(self, side: int, i: int) -> np.ndarray:
        chunk = int(np.searchsorted(self.first_rows, i, "right")) - 1
        return self.chunks[chunk][side].row(i - self.first_rows[chunk]).astype(np.int32, copy=False)

    def lengths(self, side: int) -> np.ndarray:
        parts = [chunk[side].lengths.astype(np.int32) + 1 for chunk in self.chunks]
        return np.concatenate([np.zeros(0, np.int32), *parts])

    def places(self, side: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The begins and the ends of some rows in `ids`."""
        chunk = np.searchsorted(self.first_rows, rows, "right") - 1
        offsets_at, values_at = self._addresses[chunk][:, [2 * side, 2 * side + 1]].T
        offsets_at = offsets_at + rows - self.first_rows[chunk]
        return values_at + self.offsets[offsets_at], values_at + self.offsets[offsets_at + 1]


class EncodedPairs:
    """Random access to the pairs of files written by `write_chunks`, one file after the other."""

    def __init__(
        self,
        paths: Sequence[Path],
        sizes: Sequence[int] | None = None,
        fetch: Callable[[int], None] | None = None,
        release: Callable[[int], None] | None = None,
    ) -> None:
        """If `sizes`, the number of pairs in each file, is given, a file is opened at its first use. `fetch`
        is called with the file's number before that; `release` is called when the file is closed, and may
        remove it.
        """
        self._paths, self._fetch, self._release = paths, fetch or _nothing, release or _nothing
        self._is_fetched = release is not None
        self._files: dict[int, _File] = {}
        if sizes is None:
            sizes = [int(self._file(number).first_rows[-1]) for number in range(len(paths))]
        self._starts: list[int] = np.cumsum([0, *sizes]).tolist()
        self._first_rows = np.array(self._starts, np.int64)

    def __len__(self) -> int:
        return self._starts[-1]

    def lengths(self, side: int, rows: range | None = None) -> np.ndarray:
        """The lengths of the sources (0) or targets (1) of some rows, by default all; the EOS that
        batches add is counted.
        """
        rows = range(len(self)) if rows is None else rows
        parts = [self._file(number).lengths(side)[part] for number, part in self._parts(rows)]
        return np.concatenate([np.zeros(0, np.int32), *parts])

    def src(self, i: int) -> np.ndarray:
        """Source token ids of pair i, without EOS."""
        return self._row(0, i)

    def tgt(self, i: int) -> np.ndarray:
        """Target token ids of pair i, without BOS and EOS."""
        return self._row(1, i)

    def chunks(self, rows: range) -> Iterator[Chunk]:
        """Yield the given rows, one chunk at a time."""
        for number, part in self._parts(rows):
            file = self._file(number)
            for chunk, first in zip(file.chunks, file.first_rows):
                begin, end = part.start - first, part.stop - first
                size = len(chunk[0].lengths)
                if begin < size and end > 0:
                    src, tgt = (column.part(max(0, begin), min(size, end)) for column in chunk)
                    yield src, tgt

    def gathered(self, side: int, rows: np.ndarray) -> Column:
        """The ids of the sources (0) or targets (1) of some rows, without a loop over rows or chunks, which
        would hold Python's lock.
        """
        number = np.searchsorted(self._first_rows, rows, "right") - 1
        offsets = np.zeros(len(rows) + 1, np.int64)
        starts, ends = np.zeros((2, len(rows)), np.int64)
        used = np.unique(number).tolist()
        for file in used:
            is_here = number == file
            starts[is_here], ends[is_here] = self._file(file).places(side, rows[is_here] - self._starts[file])
        lengths = ends - starts
        np.cumsum(lengths, out=offsets[1:])
        index = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
        values, files = np.empty(offsets[-1], np.int32), np.repeat(number, lengths)
        for file in used:
            is_here = files == file
            values[is_here] = self._file(file).ids[index[is_here]]
        return Column(offsets, values)

    def rows_read(self, file: int) -> np.ndarray:
        """For each row of a file, its number among all rows read for the file, dropped rows included."""
        return self._file(file).rows_read

    def is_followed(self, rows: np.ndarray) -> np.ndarray:
        """(R,) True if the next row of the file was read right after this one, with none dropped between."""
        number, is_followed = np.searchsorted(self._first_rows, rows, "right") - 1, np.zeros(len(rows), bool)
        for file in np.unique(number).tolist():
            is_here, rows_read = number == file, self.rows_read(file)
            first = rows[is_here] - self._starts[file]
            second = np.minimum(first + 1, len(rows_read) - 1)  # the last row has no next one
            is_followed[is_here] = rows_read[second] == rows_read[first] + 1
        return is_followed

    def close_all_but(self, rows: Iterable[range]) -> None:
        """Close the files that have none of these rows; a closed file is opened again when it is used."""
        kept = {number for some in rows for number, _ in self._parts(some)}
        for number in list(self._files):  # a thread may open others meanwhile
            if number not in kept:
                self._files.pop(number, None)
                self._release(number)

    def _parts(self, rows: range) -> Iterator[tuple[int, slice]]:
        """(number, slice of its rows) of each file that holds some of these rows."""
        number = bisect_right(self._starts, rows.start) - 1
        while number < len(self._paths) and (first := self._starts[number]) < rows.stop:
            size = self._starts[number + 1] - first
            yield number, slice(max(0, rows.start - first), min(size, rows.stop - first))
            number += 1

    def _file(self, number: int) -> _File:
        while (file := self._files.get(number)) is None:
            self._fetch(number)
            try:
                self._files[number] = _File(self._paths[number])
            except FileNotFoundError:
                if not self._is_fetched:
                    raise
                # Another training on this machine deleted the file after the fetch: fetch it again.
        return file

    def _row(self, side: int, i: int) -> np.ndarray:
        number = bisect_right(self._starts, i) - 1
        return self._file(number).row(side, i - self._starts[number])


def _nothing(number: int) -> None:
    """Default `fetch` and `release` for local files: do nothing."""


def _address(array: np.ndarray) -> int:
    """The memory address of the array's first byte."""
    return int(array.__array_interface__["data"][0])
