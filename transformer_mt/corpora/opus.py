"""Corpora of OPUS (Tiedemann 2012) in Moses format, found by its public web service."""

import os
import zipfile
import zlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, ClassVar

from pydantic import Field

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.remote import download, fetch_json
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root
from transformer_mt.settings.corpus_keys import Language
from transformer_mt.settings.section import pattern
from transformer_mt.text.lines import Pair, decoded_lines, open_bytes


def read_moses_zip(path: str, languages: list[str]) -> Iterator[tuple[str, str]]:
    """(source, target) line by line of the members whose names end in the two languages."""
    open_bytes(path).close()  # InputError if it is not there
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise InputError(f"{path}: is not a zip file: {error}") from None
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
            raise InputError(f"{path}: this zip file cannot be unpacked: {error}") from None
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


_SERVICE = "https://opus.nlpl.eu/opusapi/"


_NAME = pattern(r"^[\w.+-]+$", "letters, digits and the marks . + -")


class OpusCorpus(Corpus):
    """A corpus of OPUS (opus.nlpl.eu) in Moses format, downloaded once."""

    KEYS: ClassVar[tuple[str, ...]] = ("opus",)
    EXAMPLE: ClassVar[str] = "{opus: ..., version: ...}"

    opus: str = Field(pattern=_NAME)
    """Its name there: `News-Commentary`."""
    version: str = Field(pattern=_NAME)
    """Its version: `v16`."""
    languages: list[Language] | None = Field(None, min_length=2, max_length=2)
    """Source and target in OPUS's codes, where they differ: `[en, zh_CN]`."""

    def describe(self) -> str:
        return f"opus {self.opus} {self.version}"

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        codes = self.languages or list(languages)
        return read_moses_zip(str(_zip_file(self, codes)), codes)


def _zip_file(corpus: OpusCorpus, languages: list[str]) -> Path:
    first, second = sorted(languages)
    folder = cache_root() / "downloads" / "opus" / corpus.opus / corpus.version
    file = folder / f"{first}-{second}.txt.zip"
    if file.exists():
        return file
    return download(_address(corpus, first, second), file, corpus.describe(), zipfile.is_zipfile)


def _address(corpus: OpusCorpus, first: str, second: str) -> str:
    """Address of the zip file. InputError if OPUS does not have it."""
    service = os.environ.get("TRANSFORMER_MT_OPUS", _SERVICE)
    query = {"corpus": corpus.opus, "source": first, "target": second, "preprocessing": "moses"}
    matches = _corpora(service, {**query, "version": corpus.version}, corpus)
    for entry in matches:
        if (url := str(entry.get("url"))).endswith(".zip"):
            return url
    versions = sorted({str(entry.get("version")) for entry in _corpora(service, query, corpus)})
    hint = f"; its versions are {', '.join(versions)}" if versions else ""
    raise InputError(
        f"{corpus.describe()}: OPUS must have this corpus for {first} and {second}, but does not{hint}; its "
        "language codes may differ: set `languages`, such as [en, zh_CN]"
    )


def _corpora(service: str, query: dict[str, str], corpus: OpusCorpus) -> list[dict[str, Any]]:
    answer = fetch_json(service, query, corpus.describe())
    entries = answer.get("corpora") if isinstance(answer, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WorkError(f"{service}: must answer with a list of corpora, but does not; try again later")
    return entries
