"""Lines of text: files, compressed or not, and streams; pairs of lines; control characters in them."""

import bz2
import gzip
import io
import lzma
import os
import re
import select
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO

from transformer_mt.errors import InputError
from transformer_mt.files import missing

Pair = tuple[str, str]
"""A source and its translation."""


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


CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
"""Control characters, apart from those that may end lines."""

# Unicode's default-ignorable code points: soft hyphens, direction marks, word joiners. Not matched are
# zero-width spaces in Thai, Lao, Burmese and Khmer, where they separate words, and joiners in scripts that
# join letters.
INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]"
    "|(?<![\u0e00-\u109f\u1780-\u17ff])\u200b"
    "|(?<=[A-\u058f\u10a0-\u10ff\u1e00-\u1fff\u3040-\u9fff])[\u200c\u200d]"
)
"""Invisible characters, except where the script needs them."""


def as_read(text: str) -> str:
    """The text as a model gets it: control characters become spaces, invisible ones are removed."""
    return text if text.isascii() and text.isprintable() else CONTROL.sub(" ", INVISIBLE.sub("", text))


def seen_positions(text: str) -> list[int]:
    """For each character of `as_read(text)`, its position in the text."""
    invisible = {match.start() for match in INVISIBLE.finditer(text)}
    return [position for position in range(len(text)) if position not in invisible]


def control_characters(source: str) -> Iterator[str]:
    """Yield a sentence that names the control characters of a line, if it has any."""
    if characters := dict.fromkeys(CONTROL.findall(source)):
        names = ", ".join(f"U+{ord(character):04X}" for character in characters)
        yield f"control character {names} was read as a space"


def open_bytes(path: str | Path) -> IO[bytes]:
    """The file for reading, decompressed if its name ends in .gz, .bz2, .xz or .zst."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"{path}: must be a file, but is a folder")
    try:
        return open_compressed(path)
    except FileNotFoundError:
        raise InputError(missing(path)) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def read_lines(path: str | Path) -> Iterator[str]:
    """Lines of the file without their ends. InputError names the file and line of bytes that are
    not UTF-8, and a file whose lines end as on old Macs.
    """
    with open_bytes(path) as file:
        lines = decoded_lines(file, str(path))
        first = list(islice(lines, 1))
        if first and first[0].count("\r") > 1 and not (first := [*first, *islice(lines, 1)])[1:]:
            raise InputError(
                f"{path}: its lines must end with LF or CR LF, but end with CR alone; convert it: "
                "tr '\\r' '\\n'"
            )
        yield from chain(first, lines)


MOST_BYTES = 64 << 20
"""The longest line that is read."""


def decoded_lines(file: IO[bytes], path: str) -> Iterator[str]:
    """Lines of an opened file, which errors call `path`."""
    number = 0
    while True:
        try:
            raw = file.readline(MOST_BYTES + 1)
        except DAMAGED as error:
            raise InputError(f"{path}: cannot be read after line {number}: {error}") from None
        if not raw:
            return
        number += 1
        if len(raw) > MOST_BYTES:
            raise InputError(
                f"{path}:{number}: the line is longer than {MOST_BYTES >> 20} MiB; a line must be a sentence "
                "or a paragraph"
            )
        if number == 1:
            refuse_formats(raw, path)
            _refuse_utf_16(raw, path)
        try:
            # Some editors begin a file with a byte-order mark; it is not part of the first sentence.
            yield strip_end(raw).decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]  # the mark is gone from it
            raise InputError(
                f"{path}:{number}: must be UTF-8, but byte {byte:#04x} is not; convert the file (iconv) first"
            ) from None


def cut_to_whole_lines(path: Path) -> int:
    """Truncate an incomplete last line, left by an interruption, and return the number of lines. A missing
    file has 0.
    """
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        count = whole = position = 0
        while block := file.read(1 << 20):
            count += block.count(b"\n")
            if (last := block.rfind(b"\n")) >= 0:
                whole = position + last + 1
            position += len(block)
        file.truncate(whole)
    return count


# How files begin that are no text: a zip (.docx, .xlsx, .odt), PDF, gzip under another name, pictures, and
# UTF-16.
_BINARY_BEGINNINGS = {
    b"PK\x03\x04": "a zip file, as .docx, .xlsx and .odt are",
    b"%PDF-": "a PDF file",
    b"\x1f\x8b": "a gzip file without .gz at the end of its name",
    b"\xd0\xcf\x11\xe0": "an old Office file",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"{\\rtf": "an RTF file",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}


# Only the first _BEGINNING bytes are checked; a file is not text if one in _MOST_NULS of them is NUL.
_BEGINNING, _MOST_NULS = 1000, 50


def refuse_formats(beginning: bytes, name: str) -> None:
    """InputError if a file begins like one that is not plain text."""
    for begins, kind in _BINARY_BEGINNINGS.items():
        if beginning.startswith(begins):
            raise InputError(f"{name}: must be text in UTF-8, but is {kind}; save it as UTF-8 text first")


def _refuse_utf_16(line: bytes, name: str) -> None:
    """InputError for UTF-16 without a byte order mark, recognised by a zero in every second byte."""
    order = next((order for order, nuls in (("le", line[1::2]), ("be", line[::2])) if not any(nuls)), None)
    if len(line) > 3 and order is not None:
        raise InputError(
            f"{name}: must be text in UTF-8, but is UTF-16 without a mark; convert it with iconv -f utf-16"
            f"{order} -t utf-8"
        )


def refuse_binary(lines: Sequence[bytes], first: int, name: str) -> None:
    """InputError if these lines are the beginning of a file that is clearly not text; `first` is the number
    of the first line. A control character somewhere in a text is only damage and does not stop the work.
    """
    if first > 1 or not lines:
        return
    refuse_formats(lines[0], name)
    head = b"\n".join(lines[:_BEGINNING])[:_BEGINNING]
    if (count := head.count(0)) and count * _MOST_NULS >= len(head):
        raise InputError(
            f"{name}: must be text in UTF-8, but begins with {count} NUL bytes in {len(head)}; save it as "
            "UTF-8 "
            "text first"
        )


def count_lines(path: str) -> int | None:
    """The number of lines in a file; None if it is not a regular file or is compressed."""
    if not os.path.isfile(path) or path.endswith(COMPRESSED):
        return None
    with open(path, "rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        count, last = 0, b"\n"
        for block in blocks:
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def strip_end(raw: bytes) -> bytes:
    """The line without its LF or CRLF."""
    return raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")


def read_ready(stream: IO[bytes], name: str, most: Callable[[], int]) -> Iterator[list[bytes]]:
    """Yield lists of lines of the stream, without their ends; from a pipe or terminal, the lines that have
    arrived so far. `most` returns the greatest length of the next list; it is called when the caller asks for
    that list.

    A list is yielded as soon as no more input is ready, so that a caller that writes one line and waits gets
    an answer. InputErrors call the stream `name`.
    """
    descriptor = _descriptor(stream)
    ready: list[bytes] = []
    size = most()
    begun: list[bytes] = []  # parts of a line whose end has not come yet
    while True:
        try:
            if descriptor is None:
                data = stream.read(1 << 16)
            else:
                if ready and not select.select([descriptor], [], [], 0)[0]:
                    yield ready
                    ready = []
                data = os.read(descriptor, 1 << 16)
        except DAMAGED as error:
            raise InputError(f"{name}: cannot be read: {error}") from None
        if not data:
            break
        first, *others = data.split(b"\n")
        begun.append(first)
        for part in others:
            ready.append(b"".join(begun).removesuffix(b"\r"))
            begun = [part]
        while len(ready) >= size:
            yield ready[:size]
            ready = ready[size:]
            size = most()
    if last := b"".join(begun):
        ready.append(last)
    if ready:
        yield ready


def _descriptor(stream: IO[bytes]) -> int | None:
    """The file descriptor to poll, or None where there is none: a compressed file, or bytes in memory."""
    if isinstance(stream, gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile):
        return None
    try:
        return stream.fileno()
    except (OSError, AttributeError):
        return None
