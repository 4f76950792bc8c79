"""OPUS's Moses format: a zip file with one text file for each language, aligned line by line."""

import zipfile
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from typing import IO

from transformer_mt.errors import InputError
from transformer_mt.text.lines import decoded_lines, open_bytes


def read_moses_zip(path: str, languages: list[str]) -> Iterator[tuple[str, str]]:
    """(source, target) line by line of the members whose names end in the two languages."""
    open_bytes(path).close()  # InputError if it is not there
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: must be a zip file, but is not: {error}") from None
    with archive:
        members = [_member(archive, path, language) for language in languages]
        opened: list[IO[bytes]] = []
        try:
            opened += (archive.open(name) for name in members)
            sides = [decoded_lines(file, f"{path}/{name}") for file, name in zip(opened, members)]
            for number, (src, tgt) in enumerate(zip_longest(*sides)):
                if src is None or tgt is None:
                    shorter = members[0] if src is None else members[1]
                    raise InputError(
                        f"{path}: its two texts must have the same number of lines, but {shorter} ends after "
                        f"{number:,}"
                    )
                yield src, tgt
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise InputError(f"{path}: is damaged: {error}") from None
        except RuntimeError as error:  # encrypted, or with an unsupported compression
            raise InputError(
                f"{path}: must be a zip file this program can unpack, but is not: {error}"
            ) from None
        finally:
            for file in opened:
                file.close()


def _member(archive: zipfile.ZipFile, path: str, language: str) -> str:
    names = [name for name in archive.namelist() if not name.startswith("__MACOSX/")]  # metadata of macOS
    matching = [name for name in names if name.endswith(f".{language}")]
    if len(matching) != 1:
        raise InputError(
            f"{path}: must have one file that ends in .{language}, but has {', '.join(names) or 'none'}; "
            "set `columns` to the endings of its two files"
        )
    return matching[0]
