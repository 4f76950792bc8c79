"""Zip files of documents: their members read with care, and written again with others in their place."""

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from transformer_mt.errors import InputError

_MOST_BYTES = 500_000_000
_MOST_MEMBER = 400_000_000
_MOST_RATIO = 1000
"""Bytes that all members, and one, may unpack to; and how many times its packed size, beyond some size."""
_SMALL = 10_000_000
_BLOCK = 2**20
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Begins files of old office programs, and those that are protected by a password."""


@dataclass(frozen=True)
class Member:
    """A file in a zip file, unpacked where it is needed."""

    info: zipfile.ZipInfo
    archive: zipfile.ZipFile
    name: str
    """The document's, for errors."""

    @cached_property
    def content(self) -> bytes:
        """Kept."""
        return self.read()

    def read(self) -> bytes:
        """The content, not kept."""
        with _damage_named(self.name), self.archive.open(self.info) as member:
            return member.read()


def read_members(raw: bytes, name: str) -> list[Member]:
    """All members of a zip file. InputError if it is none, is protected by a password, has macros, or would
    unpack to more than a document has.
    """
    if raw.startswith(_OLD):
        raise InputError(
            f"{name}: must be in a format of 2007 or later without a password, but is not; save it in one"
        )
    with _damage_named(name):
        archive = zipfile.ZipFile(BytesIO(raw))
        infos = archive.infolist()
        _check(infos, name)
        for info in infos:
            _check_content(archive, info, name)
    return [Member(info, archive, name) for info in infos]


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """InputError for a file that is damaged."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise InputError(f"{name}: must be a whole zip file, as such documents are: {error}") from None


def _check(infos: Sequence[zipfile.ZipInfo], name: str) -> None:
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{name}: must not be protected by a password, but is; save it without one")
    if macro := next((i.filename for i in infos if Path(i.filename).name.lower() == "vbaproject.bin"), None):
        raise InputError(f"{name}: must not have macros, but has {macro}; save it without them")
    if len({info.filename for info in infos}) < len(infos):
        raise InputError(f"{name}: must have each member once, but has one twice")
    if sum(info.file_size for info in infos) > _MOST_BYTES:
        raise InputError(f"{name}: must unpack to at most {_MOST_BYTES:,} bytes, but is larger")


def _check_content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> None:
    """InputError for a member that is damaged, or larger than allowed, whatever size the file says it has.
    Little of it is in memory at a time.
    """
    most = min(_MOST_MEMBER, max(_SMALL, _MOST_RATIO * info.compress_size))
    with archive.open(info) as member:
        count = 0
        while block := member.read(_BLOCK):
            count += len(block)
            if count > most:
                raise InputError(f"{name}: must unpack to less, but {info.filename} has over {most:,} bytes")


def packed(members: Sequence[Member], changed: Mapping[str, bytes]) -> bytes:
    """The zip file with other contents of some members, in the same order."""
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for member in members:
            info = zipfile.ZipInfo(member.info.filename, member.info.date_time)
            for field in ("compress_type", "comment", "create_system", "external_attr", "extra"):
                setattr(info, field, getattr(member.info, field))
            content = changed.get(info.filename)
            archive.writestr(info, member.read() if content is None else content)
    return written.getvalue()
