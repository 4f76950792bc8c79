"""Sentence pairs of the Hugging Face hub, or of a local folder in its layout; how its files are found and
fetched.
"""

import hashlib
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

from pydantic import Field

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.file import (
    SEPARATORS,
    TABLES,
    pair_of,
    parquet_rows,
    rows_by_name,
    wrong_number_of_columns,
)
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import cache_root, write_text
from transformer_mt.settings.section import Conflict, pattern
from transformer_mt.text.lines import Pair, without_compression

_TRIES = 5
# Seconds before the second try; twice as long before each later one.
_WAIT = 1.0
_NETWORK_PACKAGES = {"httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "hf_xet", "requests"}


def download(
    repo: str, path: str, revision: str, described: str, kind: Literal["dataset", "model"] = "dataset"
) -> Path:
    """The file in the local cache, downloaded if it is not there; a cut download is resumed. InputError if
    the hub does not have it, WorkError if it cannot be downloaded.
    """
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    cached = huggingface_hub.try_to_load_from_cache(repo, path, revision=revision, repo_type=kind)
    if isinstance(cached, str):
        return Path(cached)
    for attempt in range(_TRIES):
        try:
            return Path(huggingface_hub.hf_hub_download(repo, path, repo_type=kind, revision=revision))
        except LocalEntryNotFoundError as error:  # no connection: the library has tried several times
            cause: BaseException = error.__cause__ or error
            break
        except EntryNotFoundError:
            raise InputError(f"{described}: {path} is not on the hub any more; set `revision`") from None
        except Exception as error:  # the type of network errors depends on the library's version
            if not is_network_error(error):
                raise
            cause = error
        if attempt < _TRIES - 1:
            time.sleep(_WAIT * 2**attempt)
    reason = " ".join(str(cause).split())[:200] or type(cause).__name__
    raise WorkError(
        f"{described}: {path} cannot be downloaded from the hub: {reason}; check the network and run it "
        "again, it resumes"
    )


def is_network_error(error: BaseException) -> bool:
    """True if a connection failed, or the hub refused."""
    return isinstance(error, OSError) or type(error).__module__.split(".")[0] in _NETWORK_PACKAGES


_ADDRESS = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<commit>[^/]+)/(?P<path>.+)$")
_READ_HERE = {*TABLES, ".txt"}
"""Endings of files that are read here, by the same rules as local corpus files."""
_FORMAT = 2  # of the cached lists; raise it when they change
_OF_TEXT = ("sep", "delimiter")
"""The settings of a set's card that are followed here."""

Files = dict[str, list[str]]
"""The files of each split: paths, or addresses with the commit."""


def file_lists(hub: str, config: str | None, revision: str | None) -> tuple[Files, str | None] | None:
    """The files of a set on the hub or in a folder, and the column separator if its card names one. None if
    the set is in another format, or its card has settings that are not supported here.

    The hub's answer is cached, so that files fetched before can be read without a network.
    """
    import datasets

    facts = [hub, config, revision, _FORMAT]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    kept = cache_root() / "downloads" / "hub" / f"{name}.json"
    try:
        builder = datasets.load_dataset_builder(hub, config, revision=revision)
    except Exception:
        if kept.exists():
            files, mark = json.loads(kept.read_text(encoding="utf-8"))
            return files, mark
        raise
    files = {str(split): list(map(str, urls)) for split, urls in (builder.config.data_files or {}).items()}
    endings = {_ending(url) for urls in files.values() for url in urls}
    if not files or not endings <= _READ_HERE or _has_other_settings(builder.config):
        return None
    given = [getattr(builder.config, key, None) for key in reversed(_OF_TEXT)]
    mark = next(filter(None, given), None)
    mark = None if mark in {SEPARATORS.get(ending) for ending in endings} else mark
    if not Path(hub).is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_text(kept, json.dumps([files, mark]))
    return files, mark


def _ending(file: str) -> str:
    return Path(without_compression(file)).suffix.lower()


def _has_other_settings(config: Any) -> bool:
    """True if the set's card has settings that are not supported here, such as no header or a JSON field."""
    usual, ignored = type(config)(), {"name", "version", "data_dir", "data_files", "description", "features"}
    names = vars(config).keys() - ignored - set(_OF_TEXT)
    return any(getattr(config, key) != getattr(usual, key, None) for key in names)


def rows_of_files(
    files: list[str],
    columns: list[str],
    start: int | None,
    stop: int | None,
    described: str,
    mark: str | None,
) -> Iterator[dict[str, Any]]:
    """The rows `start:stop` of the concatenated files, sliced as in Python. From parquet files only the given
    columns are read, at the top level or inside a `translation` column. Files after `stop` are not fetched,
    but a negative bound needs all files.
    """

    def rows_of(file: str) -> Iterator[dict[str, Any]]:
        path, ending = str(_fetch(file, described)), _ending(file)
        # Do not read other columns, which may be images. If these are missing, the error names all columns.
        if ending == ".parquet":
            return parquet_rows(path, columns, ["translation"])
        return rows_by_name(path, ending, mark)

    if (start or 0) < 0 or (stop or 0) < 0:
        total = 0
        for file in files:
            is_counted = _ending(file) == ".parquet"
            total += _num_rows(_fetch(file, described)) if is_counted else sum(1 for _ in rows_of(file))
        start, stop, _ = slice(start, stop).indices(total)
    return islice(chain.from_iterable(map(rows_of, files)), start or 0, stop)


def _num_rows(file: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.ParquetFile(file).metadata.num_rows)


def _fetch(file: str, described: str) -> Path:
    match = _ADDRESS.match(file)
    return Path(file) if match is None else download(match["repo"], match["path"], match["commit"], described)


_SPLIT = pattern(
    r"^[\w.-]+(\[(-?\d+)?:(-?\d+)?\])?$",
    "the name of a split or a slice by numbers of rows, such as train or train[:500000], not in percent",
)


class UnknownSplitError(InputError):
    """The hub's set has no such split."""


class HubCorpus(Corpus):
    """A set on the Hugging Face hub, or a local folder in the hub's layout."""

    KEYS: ClassVar[tuple[str, ...]] = ("hub",)
    EXAMPLE: ClassVar[str] = "{split: ...} of data.hub, {hub: ..., split: ...}"

    hub: str
    """Name on the hub (`wmt/wmt14`) or a local folder; `data.hub` is the default."""
    config: str | None = None
    """The set's configuration (`de-en`); `data.config` is the default."""
    split: str = Field(pattern=_SPLIT)
    """A split, or a slice of one: `train`, `train[:500000]`."""
    columns: list[str] | None = Field(None, min_length=1, max_length=2)
    """Source and target columns, or the text column; by default named after the languages, at the top level
    or in a `translation` column.
    """
    revision: str | None = None
    """Commit, tag or branch on the hub that pins the set; by default the newest state."""

    def describe(self) -> str:
        return " ".join(filter(None, [self.hub, self.config, self.split]))

    @property
    def has_both_sides(self) -> bool:
        return self.columns is not None and len(self.columns) == 2

    @property
    def is_remote(self) -> bool:
        return not Path(self.hub).is_dir()

    @property
    def is_public(self) -> bool:
        return self.is_remote

    def local_files(self) -> list[Path]:
        folder = Path(self.hub)
        return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        yield from wrong_number_of_columns(self.columns, self.is_text)

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        columns = self.columns or list(languages)
        columns = columns * 2 if len(columns) == 1 else columns
        return (pair_of(row, columns, self.hub) for row in read_hub(self, columns))


def read_hub(corpus: HubCorpus, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a set on the hub, or of a local folder in the hub's layout, with at least those of the
    columns that it has. A negative bound counts from the end of the split. UnknownSplitError if there is no
    such split.
    """
    match = re.fullmatch(r"([\w.-]+)(?:\[(-?\d*):(-?\d*)\])?", corpus.split)
    assert match, corpus.split  # the key's pattern has checked the form
    name, *bounds = match.groups()
    start, stop = (int(bound) if bound else None for bound in bounds)
    loaded = _load_hub(corpus, name)
    if isinstance(loaded, tuple):  # files, none of which is fetched yet
        files, mark = loaded
        yield from rows_of_files(files, columns, start, stop, corpus.describe(), mark)
        return
    yield from _rows_of(loaded, corpus, columns, start, stop)


def _rows_of(
    dataset: Any, corpus: HubCorpus, columns: list[str], start: int | None, stop: int | None
) -> Iterator[dict[str, Any]]:
    wanted = columns if set(columns) <= set(dataset.column_names) else ["translation"]
    if set(wanted) <= set(dataset.column_names):  # else pair_of reports the columns
        dataset = dataset.select_columns(wanted)  # do not decode others, such as images
    rows = range(len(dataset))[start:stop]
    for begin in range(rows.start, rows.stop, 1000):
        # Read in slices: single rows are ten times slower.
        try:
            part = dataset[begin : min(begin + 1000, rows.stop)]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{corpus.describe()}: is damaged or holds text that is not UTF-8: {error}"
            ) from None
        for i in range(len(next(iter(part.values()), []))):
            yield {column: part[column][i] for column in part}


def _hub_has_address() -> bool:
    """False if the host name of the hub cannot be resolved: there is no network. Always true with a proxy,
    which resolves the name.
    """
    from huggingface_hub.constants import ENDPOINT

    try:
        return bool(getproxies()) or bool(socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None))
    except OSError:
        return False


def _load_hub(corpus: HubCorpus, split: str) -> Any:
    """One split of a data set: its files and their column separator, or a memory-mapped data set if its
    format is not read here.
    """
    import datasets
    import huggingface_hub

    # The error of a broken connection, which newer versions of the hub's library do not wrap.
    network_error = getattr(getattr(huggingface_hub.utils, "httpx", None), "HTTPError", OSError)
    local = Path(corpus.hub).is_dir()
    if not local:
        # Without a network, use the cache at once: the library would first retry for half a minute.
        is_offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        is_offline = is_offline or not _hub_has_address()
        huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = is_offline
    if not local and (corpus.hub.startswith((".", "/", "~")) or corpus.hub.count("/") > 1):
        raise InputError(f"{corpus.hub}: no such folder; paths are relative to the current folder")
    datasets.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # we report its retries in one line
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        if (listed := file_lists(corpus.hub, corpus.config, corpus.revision)) is not None:
            files, mark = listed
            if split not in files:
                raise UnknownSplitError(
                    f"{corpus.hub}: no split `{split}`; the splits are {', '.join(files)}"
                )
            return files[split], mark
        # Check the split's name first: a misspelt one must not cost a download.
        splits = datasets.get_dataset_split_names(corpus.hub, corpus.config, revision=corpus.revision)
        if split not in splits:
            raise UnknownSplitError(f"{corpus.hub}: no split `{split}`; the splits are {', '.join(splits)}")
        return datasets.load_dataset(corpus.hub, corpus.config, split=split, revision=corpus.revision)
    except InputError:
        raise
    except (datasets.exceptions.DatasetNotFoundError, ConnectionError, OSError, network_error) as error:
        if local:
            raise InputError(f"{corpus.hub}: cannot be read as a data set: {_one_line(error)}") from None
        raise InputError(
            f"{corpus.hub}: cannot be downloaded from the hub ({type(error).__name__}); check the name and "
            "the network, or give a local copy: data.hub=FOLDER; `transformer-mt train demo` needs no network"
        ) from None
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        # Such as an unknown configuration; the message lists the known ones. A cause has the clearer message.
        raise InputError(
            f"{corpus.hub}: cannot be read as a data set: {_one_line(error.__cause__ or error)}"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
