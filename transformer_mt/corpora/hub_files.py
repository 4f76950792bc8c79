"""The parquet files of a set on the hub: fetched one by one, and no more than a slice needs."""

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transformer_mt.cache import cache_root
from transformer_mt.corpora.hub_download import download
from transformer_mt.corpora.tables import parquet_rows
from transformer_mt.files import write_text

_ADDRESS = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<commit>[^/]+)/(?P<path>.+\.parquet)$")


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
    # Other columns, of pictures perhaps, are not read. Where these are missing, the error names all.
    wanted = columns, ["translation"]
    rows = chain.from_iterable(parquet_rows(str(_fetch(url, described)), *wanted) for url in urls)
    return islice(rows, start or 0, stop)


def _num_rows(file: Path) -> int:
    import pyarrow.parquet

    return int(pyarrow.parquet.ParquetFile(file).metadata.num_rows)


def _fetch(url: str, described: str) -> Path:
    match = _ADDRESS.match(url)
    assert match, url
    return download(match["repo"], match["path"], match["commit"], described)
