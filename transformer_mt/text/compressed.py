"""Compressed files: .gz, .bz2, .xz and .zst, decompressed while they are read."""

import bz2
import gzip
import io
import lzma
import zlib
from pathlib import Path
from typing import IO

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""Endings of compressed files."""

DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""The errors of reading a damaged or cut file."""


def open_compressed(path: Path) -> IO[bytes]:
    """The file for reading, decompressed if its name has such an ending."""
    suffix = path.suffix.lower()
    if suffix == ".zst":
        import pyarrow  # Python 3.11 has no Zstandard of its own

        return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix)
    return opened(path, "rb") if opened else path.open("rb")  # type: ignore[operator]


def without_compression(name: str) -> str:
    """The name without the ending of a compressed file."""
    suffix = Path(name).suffix
    return name.removesuffix(suffix) if suffix.lower() in COMPRESSED else name
