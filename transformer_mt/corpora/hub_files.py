"""The files of a set on the hub, parquet and text: fetched one by one, and no more than a slice needs."""

import hashlib
import json
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from transformer_mt.cache import cache_root
from transformer_mt.corpora.hub_download import download
from transformer_mt.corpora.tables import parquet_rows, rows_by_name
from transformer_mt.files import write_text
from transformer_mt.text.compressed import without_compression

_ADDRESS = re.compile(r"hf://datasets/(?P<repo>[^@]+)@(?P<commit>[^/]+)/(?P<path>.+)$")
_READ_HERE = (".parquet", ".tsv", ".csv", ".json", ".jsonl", ".txt")
"""Endings of files; text is read by the rules that hold for it as a file."""
_FORMAT = 2  # of the cached lists; raise it when they change
_OF_TEXT = ("sep", "delimiter")
"""The settings of a set's card that are followed here."""

Files = dict[str, list[str]]
"""The files of each split: paths, or addresses with the commit."""


def file_lists(hub: str, config: str | None, revision: str | None) -> tuple[Files, str | None] | None:
    """The files of a set on the hub or in a folder, and the mark between columns if its card names one; None
    if the set is in another format, or its card asks for what is not done here.

    The answer of the hub is kept, so that what was fetched can be read without a network.
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
    if not files or not endings <= set(_READ_HERE) or _has_other_settings(builder.config):
        return None
    marks = {".tsv": "\t", ".csv": ","}
    given = [getattr(builder.config, key, None) for key in reversed(_OF_TEXT)]
    mark = next(filter(None, given), None)
    mark = None if mark in {marks.get(ending) for ending in endings} else mark
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
    """The rows from `start` to before `stop` of files that follow one another, as Python slices them: of
    parquet the given columns, alone or inside a `translation` column. Files after `stop` are not fetched; a
    bound counted from the end needs all.
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
