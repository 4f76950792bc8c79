"""Sentence pairs of the Hugging Face hub, or of a local folder in the hub's layout."""

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit
from urllib.request import getproxies

from pydantic import Field

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.hub_files import file_lists, rows_of_files
from transformer_mt.corpora.tables import pair_of, wrong_number_of_columns
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Conflict, pattern
from transformer_mt.text.pair import Pair

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
    """The rows of a set on the hub, or of a folder in its layout, with at least these columns where it has
    them. UnknownSplitError if it has no such split; a negative bound counts from its end.
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
    """False if the name of the hub's server cannot be resolved: there is no network. A proxy resolves it."""
    from huggingface_hub.constants import ENDPOINT

    try:
        return bool(getproxies()) or bool(socket.getaddrinfo(urlsplit(ENDPOINT).hostname, None))
    except OSError:
        return False


def _load_hub(corpus: HubCorpus, split: str) -> Any:
    """One split of a data set: its files and their column separator, or for formats that are not read here a
    memory-mapped data set.
    """
    import datasets
    import huggingface_hub

    # The error of a broken connection, which newer versions of the hub's library do not wrap.
    network_error = getattr(getattr(huggingface_hub.utils, "httpx", None), "HTTPError", OSError)
    local = Path(corpus.hub).is_dir()
    if not local:
        # Use the cache only: the library would retry for half a minute before that.
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
