"""Corpora of OPUS (Tiedemann 2012) in Moses format, found by its public web service."""

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from transformer_mt.cache import cache_root
from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.download import download, fetch_json
from transformer_mt.corpora.moses import read_moses_zip
from transformer_mt.errors import InputError, WorkError
from transformer_mt.settings.language import Language
from transformer_mt.settings.section import pattern
from transformer_mt.text.pair import Pair

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
