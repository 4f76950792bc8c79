"""Lines of text, by the one rule of the project: a line ends at LF or CRLF only, and text is UTF-8.

Python's own `splitlines` also ends lines at U+2028, VT, FF and NEL, which real corpora hold inside sentences;
two files split that way no longer align.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from transformer_mt.errors import InputError


def open_bytes(path: str | Path) -> IO[bytes]:
    """The file for reading, unpacked if its name ends in .gz."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: must be a file, but is a folder")
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; paths are taken from the folder you start in") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(path: str | Path) -> Iterator[str]:
    """Lines of the file without their ends. InputError names the file and line of bytes that are not UTF-8."""
    with open_bytes(path) as file:
        number = 0
        while True:
            try:
                raw = file.readline()
            except (OSError, EOFError, zlib.error) as error:
                raise InputError(f"{path}: cannot be read after line {number}: {error}") from None
            if not raw:
                return
            number += 1
            try:
                # Some editors begin a file with a byte-order mark; it is not part of the first sentence.
                yield strip_end(raw).decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}:{number}: must be UTF-8, but byte {raw[error.start]:#04x} is not; convert the file (iconv) first"
                ) from None


def strip_end(raw: bytes) -> bytes:
    """The line without its LF or CRLF."""
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")
