"""The parquet files of a set on the hub: fetched one by one, and no more than a slice needs."""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transformer_mt.cache import cache_root
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import write_text

_ADDRESS = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<commit>[^/]+)/(?P<path>.+\.parquet)$")
_TRIES = 5
# Seconds before the second try; twice as long before each later one.
_WAIT = 1.0
_NETWORK_PACKAGES = {"httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "hf_xet", "requests"}


def file_lists(hub: str, config: str | None, revision: str | None) -> dict[str, list[str]] | None:
    """The parquet files of each split, as addresses with the commit; None if the set is in another format.

    The answer of the hub is kept, so that what was fetched can be read without a network.
    """
    import datasets

    facts = [hub, config, revision]
    name = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    kept = cache_root() / "downloads" / "hub" / f"{name}.json"
    try:
        builder = datasets.load_dataset_builder(hub, config, revision=revision)
    except Exception:
        if kept.exists():
            return dict(json.loads(kept.read_text(encoding="utf-8")))
        raise
    files = {split: list(map(str, urls)) for split, urls in (builder.config.data_files or {}).items()}
    if not files or not all(_ADDRESS.match(url) for urls in files.values() for url in urls):
        return None
    kept.parent.mkdir(parents=True, exist_ok=True)
    write_text(kept, json.dumps(files))
    return files


def rows_of_files(
    urls: list[str], columns: list[str], start: int | None, stop: int | None, described: str
) -> Iterator[dict[str, Any]]:
    """The rows from `start` to before `stop` of parquet files that follow one another, as Python slices them:
    the given columns, alone or inside a `translation` column. Files after `stop` are not fetched; a bound
    counted from the end needs all.
    """
    if (start or 0) < 0 or (stop or 0) < 0:
        total = sum(_num_rows(_fetch(url, described)) for url in urls)
        start, stop, _ = slice(start, stop).indices(total)
    rows = chain.from_iterable(_rows(_fetch(url, described), columns, described) for url in urls)
    return islice(rows, start or 0, stop)


def _num_rows(file: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.ParquetFile(file).metadata.num_rows)


def _rows(file: Path, columns: list[str], described: str) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(file)
        names = set(table.schema_arrow.names)
        # Others, of pictures perhaps, are not read. Where these are missing, the error names all.
        wanted = next((some for some in (columns, ["translation"]) if set(some) <= names), None)
        for batch in table.iter_batches(batch_size=10_000, columns=wanted):
            yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{described}: {file} is damaged or holds text that is not UTF-8: {error}") from None


def _fetch(url: str, described: str) -> Path:
    """The file in the hub's local cache, downloaded if it is not there; a cut download is resumed."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    match = _ADDRESS.match(url)
    assert match, url
    repo, path, commit = match["repo"], match["path"], match["commit"]
    cached = huggingface_hub.try_to_load_from_cache(repo, path, revision=commit, repo_type="dataset")
    if isinstance(cached, str):
        return Path(cached)
    for attempt in range(_TRIES):
        try:
            file = huggingface_hub.hf_hub_download(repo, path, repo_type="dataset", revision=commit)
            return Path(file)
        except LocalEntryNotFoundError as error:  # no connection: the library has tried several times
            cause: BaseException = error.__cause__ or error
            break
        except EntryNotFoundError:
            raise InputError(f"{described}: {path} is not on the hub any more; set `revision`") from None
        except Exception as error:  # what a broken connection raises depends on the library's version
            package = type(error).__module__.split(".")[0]
            if not isinstance(error, OSError) and package not in _NETWORK_PACKAGES:
                raise
            cause = error
        if attempt < _TRIES - 1:
            time.sleep(_WAIT * 2**attempt)
    reason = " ".join(str(cause).split())[:200] or type(cause).__name__
    raise WorkError(
        f"{described}: {path} cannot be downloaded from the hub: {reason}; check the network and run it "
        "again, it resumes"
    )
