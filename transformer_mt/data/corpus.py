"""Sentence pairs from the hub, from files, or from the built-in toy language."""

import csv
import itertools
import json
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.config import DataConfig
from transformer_mt.config.corpus import Columns, Corpus, FileCorpus, FilesCorpus, HubCorpus, ToyCorpus
from transformer_mt.data import toy
from transformer_mt.data.lines import read_lines
from transformer_mt.errors import InputError

Pair = tuple[str, str]


class UnknownSplitError(InputError):
    """The hub's set has no such split."""


def read_corpus(corpus: Corpus, data: DataConfig) -> Iterator[Pair]:
    """(source, target) pairs of the corpus in its own order; InputError says what is wrong with it.

    A missing file, split or column raises at the first pair; bytes that are not UTF-8 raise when read.
    """
    languages = [corpus.source_lang or data.source_lang, corpus.target_lang or data.target_lang]
    if isinstance(corpus, ToyCorpus):
        if {language.lower() for language in languages} != {"en", "de"}:
            raise InputError(
                f"the toy language has en and de, but data asks for {languages[0]} and {languages[1]}"
            )
        pairs = toy.generate(corpus.toy, corpus.size)
        return pairs if languages[0].lower() == "en" else ((de, en) for en, de in pairs)
    if isinstance(corpus, FilesCorpus):
        return _not_empty(_read_files(corpus), f"{corpus.source} and {corpus.target}")
    if isinstance(corpus, FileCorpus):
        return _not_empty(_read_file(corpus, languages), corpus.file)
    return _not_empty(_read_hub(corpus, languages), describe(corpus))


def describe(corpus: Corpus) -> str:
    """The corpus in a few words."""
    if isinstance(corpus, ToyCorpus):
        return f"toy {corpus.toy}"
    if isinstance(corpus, FilesCorpus):
        return f"{corpus.source} + {corpus.target}"
    if isinstance(corpus, FileCorpus):
        return corpus.file
    return " ".join(filter(None, [corpus.hub, corpus.config, corpus.split]))


def name_of(corpus: Corpus) -> str:
    """The name of the corpus in tables."""
    return corpus.name or describe(corpus)


def described_access(corpus: Corpus) -> str:
    """The corpus in a few words, and that it comes from the network if it does."""
    is_remote = isinstance(corpus, HubCorpus) and not Path(corpus.hub).is_dir()
    return describe(corpus) + (", from the hub or its local cache" if is_remote else "")


def identity(corpus: Corpus) -> dict[str, Any]:
    """Facts that change when the corpus does: its description, and size and time of each local file."""
    facts: dict[str, Any] = corpus.model_dump(exclude={"name", "weight", "license"})
    if isinstance(corpus, ToyCorpus):
        return facts | {"toy_version": toy.VERSION}
    if isinstance(corpus, FilesCorpus):
        paths = [Path(corpus.source), Path(corpus.target)]
    elif isinstance(corpus, FileCorpus):
        paths = [Path(corpus.file)]
    else:
        folder = Path(corpus.hub)
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
    files = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file; paths are taken from the folder you start in")
        stat = path.stat()
        files.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    return facts | {"files": files}


def _not_empty(pairs: Iterator[Pair], what: str) -> Iterator[Pair]:
    first = next(pairs, None)
    if first is None:
        raise InputError(f"{what}: a corpus must have sentence pairs, but is empty")
    return itertools.chain([first], pairs)


def _read_files(corpus: FilesCorpus) -> Iterator[Pair]:
    source, target = read_lines(corpus.source), read_lines(corpus.target)
    for count, (src, tgt) in enumerate(itertools.zip_longest(source, target)):
        if src is None or tgt is None:
            more = sum(1 for _ in (source if tgt is None else target)) + 1
            src_count, tgt_count = (count + more, count) if tgt is None else (count, count + more)
            raise InputError(
                f"the two files must have the same number of lines, but {corpus.source} has {src_count:,} "
                f"and {corpus.target} has {tgt_count:,}"
            )
        yield src, tgt


def _read_file(corpus: FileCorpus, languages: list[str]) -> Iterator[Pair]:
    suffix = Path(corpus.file.removesuffix(".gz")).suffix
    columns = corpus.columns or languages
    if suffix == ".tsv":
        return _read_table(corpus, columns, (line.split("\t") for line in read_lines(corpus.file)))
    if suffix == ".csv":
        return _read_table(
            corpus, columns, csv.reader((line + "\n" for line in read_lines(corpus.file)), strict=True)
        )
    if suffix in (".jsonl", ".json", ".parquet"):
        names = [column for column in columns if isinstance(column, str)]
        if len(names) < 2:
            raise InputError(
                f"{corpus.file}: columns must be names, but are {columns}; numbers are for .tsv and .csv"
            )
        return _read_parquet(corpus, names) if suffix == ".parquet" else _read_jsonl(corpus, names)
    raise InputError(
        f"{corpus.file}: a corpus file must end in .tsv, .csv, .jsonl or .parquet (.gz may follow)"
    )


def _read_table(corpus: FileCorpus, columns: Columns, rows: Iterator[list[str]]) -> Iterator[Pair]:
    """The two columns of each row. Columns given by number, from 1 on, mean that there is no header."""
    header: list[str] = []
    for number in itertools.count(1):
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"{corpus.file}: row {number} is not CSV: {error}; is a quote left open?"
            ) from None
        if row is None:
            return
        if row in ([], [""]):  # a blank line
            continue
        if not header:
            header = row
            src, tgt = (_column(column, header, corpus.file) for column in columns)
            if isinstance(columns[0], str):
                continue
        if len(row) != len(header):
            raise InputError(
                f"{corpus.file}: row {number} must have {len(header)} columns, but has {len(row)}"
            )
        yield _sentence(row[src]), _sentence(row[tgt])


def _column(name: str | int, columns: list[str], place: str) -> int:
    """The index of a column, given by its name or by its number from 1 on."""
    if isinstance(name, int):
        if name > len(columns):
            raise InputError(f"{place}: must have a column {name}, but has {len(columns)}")
        return name - 1
    if name not in columns:
        there = ", ".join(column if len(column) <= 40 else f"{column[:40]}…" for column in columns)
        raise InputError(
            f"{place}: no column `{name}`; the columns are {there}; set `columns: [source, target]`, or for "
            "a table without header their numbers, `columns: [1, 2]`"
        )
    return columns.index(name)


def _read_jsonl(corpus: FileCorpus, columns: list[str]) -> Iterator[Pair]:
    for number, line in enumerate(read_lines(corpus.file), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            why = getattr(error, "msg", "it is nested too deep")
            raise InputError(f"{corpus.file}:{number}: must be a JSON object a line: {why}") from None
        if not isinstance(row, dict):
            raise InputError(f"{corpus.file}:{number}: must be a JSON object, but is {line[:40]!r}")
        pair = _pair(row, columns, f"{corpus.file}:{number}")
        try:
            "".join(pair).encode()
        except UnicodeEncodeError:  # JSON can spell half a character: "\\ud800"
            raise InputError(
                f"{corpus.file}:{number}: must be whole characters, but holds half a surrogate pair"
            ) from None
        yield pair


def _read_parquet(corpus: FileCorpus, columns: list[str]) -> Iterator[Pair]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(corpus.file)
    except FileNotFoundError:
        raise InputError(
            f"{corpus.file}: no such file; paths are taken from the folder you start in"
        ) from None
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{corpus.file}: must be a parquet file: {error}") from None
    batches = table.iter_batches(batch_size=10_000)
    while True:
        try:
            rows = next(batches).to_pylist()
        except StopIteration:
            return
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{corpus.file}: is damaged or holds text that is not UTF-8: {error}") from None
        for row in rows:
            yield _pair(row, columns, corpus.file)


def _pair(row: dict[str, Any], columns: list[str], place: str) -> Pair:
    """The two columns of a row, which may stand inside a `translation` column, as the WMT sets have it."""
    nested = row.get("translation")
    if isinstance(nested, dict) and not all(name in row for name in columns):
        row = nested
    for name in columns:
        _column(name, list(row), place)
    src, tgt = (row[name] for name in columns)
    if not (isinstance(src, str | None) and isinstance(tgt, str | None)):
        raise InputError(
            f"{place}: columns `{columns[0]}` and `{columns[1]}` must hold text, but hold {src!r} and {tgt!r}"
        )
    return _sentence(src or ""), _sentence(tgt or "")


def _sentence(text: str) -> str:
    """A newline inside a cell is white space: a sentence is one line everywhere else."""
    return " ".join(text.split("\n"))


def _read_hub(corpus: HubCorpus, languages: list[str]) -> Iterator[Pair]:
    match = re.fullmatch(r"([\w.-]+)(?:\[(-?\d*):(-?\d*)\])?", corpus.split)
    assert match, corpus.split  # config.py has checked the form
    name, *bounds = match.groups()
    start, stop = (int(bound) if bound else None for bound in bounds)
    dataset = _load_hub(corpus, name)
    columns = corpus.columns or languages
    wanted = columns if set(columns) <= set(dataset.column_names) else ["translation"]
    if set(wanted) <= set(dataset.column_names):  # else _pair says what there is
        dataset = dataset.select_columns(wanted)  # others, of pictures perhaps, are not decoded
    rows = range(len(dataset))[start:stop]
    for begin in range(rows.start, rows.stop, 1000):
        # By slices: a row at a time is ten times slower.
        try:
            part = dataset[begin : min(begin + 1000, rows.stop)]
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{describe(corpus)}: is damaged or holds text that is not UTF-8: {error}"
            ) from None
        for i in range(len(next(iter(part.values()), []))):
            yield _pair({column: part[column][i] for column in part}, columns, corpus.hub)


def _load_hub(corpus: HubCorpus, split: str) -> Any:
    """One split of a set of the hub, or of a local folder laid out like one, memory-mapped."""
    import datasets
    import huggingface_hub

    # What a broken connection raises: newer versions of the hub's library let it through as it is.
    network_error = getattr(getattr(huggingface_hub.utils, "httpx", None), "HTTPError", OSError)
    local = Path(corpus.hub).is_dir()
    if not local and (corpus.hub.startswith((".", "/", "~")) or corpus.hub.count("/") > 1):
        raise InputError(f"{corpus.hub}: no such folder; paths are taken from the folder you start in")
    datasets.utils.logging.set_verbosity_error()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # one line of ours reports its retries
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        # The names first: a misspelt split must not cost a download.
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
            f"{corpus.hub}: cannot be had from the hub ({type(error).__name__}); check the name and the "
            "network, or download it elsewhere and set data.hub to the folder"
        ) from None
    except (ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        # Among them an unknown configuration, with the list of those there are, and what a cause says better.
        raise InputError(
            f"{corpus.hub}: cannot be read as a data set: {_one_line(error.__cause__ or error)}"
        ) from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400] or type(error).__name__
