"""The corpus kind `file`: sentence pairs in one file, or in several that a pattern names. The ending says how
a file is read: tables (.tsv, .csv, .jsonl, .parquet) here, .tmx in tmx.py, .zip in opus.py.
"""

import csv
import itertools
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.opus import read_moses_zip
from transformer_mt.corpora.remote import facts_of, is_url, matching, open_file
from transformer_mt.corpora.tmx import read_tmx
from transformer_mt.errors import InputError
from transformer_mt.files import missing
from transformer_mt.messages import say, say_once
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import COMPRESSED, Pair, read_lines, without_compression

SEPARATORS = {".tsv": "\t", ".csv": ","}
"""The endings of text tables, and what separates their columns by default."""
TABLES = (*SEPARATORS, ".jsonl", ".json", ".parquet")
"""The endings of all tables."""
Columns = list[str] | list[int]
"""Source and target column, by name or by number from 1 on."""


TWO_COLUMNS = "two names ([en, de]) or, for a table without header, two numbers from 1 on ([1, 2])"

_SHOWN = 3
_MOST_LINES = 100
"""The most line breaks in one cell."""


def wrong_number_of_columns(columns: Columns | list[str] | None, is_text: bool) -> Iterator[str]:
    """Yields an error message unless there are two columns, or one column of plain text."""
    if columns is not None and len(columns) != 2 and not (is_text and len(columns) == 1):
        must = "one column of text, or two columns of pairs" if is_text else TWO_COLUMNS
        yield f"columns must be {must}, but is {columns!r}"


class DamagedRows:
    """The rows of a table that hold no pair; their numbers count from 1 on."""

    def __init__(self) -> None:
        self.problems: dict[int, str] = {}
        """Row number to its problem: `must have 2 columns, but has 3`."""

    def add(self, number: int, problem: str) -> None:
        self.problems[number] = problem

    def summary(self) -> str:
        """The number of damaged rows, and the problems of the first ones."""
        first = [f"row {number} {problem}" for number, problem in list(self.problems.items())[:_SHOWN]]
        count = len(self.problems)
        return first[0] if count == 1 else f"{count:,} rows are damaged: {'; '.join(first)}"


def read_rows(
    path: str, columns: Columns, suffix: str, delimiter: str | None, damaged: DamagedRows
) -> Iterator[Pair]:
    """The pairs of a text table (.tsv, .csv) or of a table with named values (.jsonl, .parquet). Rows without
    a pair are left out and added to `damaged`.
    """
    if suffix in SEPARATORS:
        return _read_text_table(path, columns, text_rows(path, suffix, delimiter), damaged)
    if delimiter:
        raise InputError(f"{path}: delimiter requires a .tsv or .csv file; leave it out")
    names = [column for column in columns if isinstance(column, str)]
    if len(names) < 2:
        raise InputError(f"{path}: columns must be names, but are {columns}; numbers are for .tsv and .csv")
    return _read_named(path, names, named_rows(path, suffix), damaged)


def text_rows(path: str, suffix: str, delimiter: str | None) -> Iterator[tuple[int, list[str]]]:
    """(number, cells) of the rows of a .tsv or .csv file, without blank lines."""
    usual = SEPARATORS[suffix]
    if usual == "\t":
        rows = _tsv_rows(path, delimiter or usual)
    else:
        lines = (line + "\n" for line in read_lines(path))
        rows = csv.reader(lines, strict=True, delimiter=delimiter or usual)
    for number in itertools.count(1):
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise InputError(
                f"{path}: row {number} is not CSV: {error}; is a quote left open, or does a line end in CR?"
            ) from None
        if row is None:
            return
        if row not in ([], [""]):
            yield number, row


def _tsv_rows(path: str, gap: str) -> Iterator[list[str]]:
    """The cells of each row. Quotation marks belong to the text unless the file is quoted as by a spreadsheet
    (`_is_of_spreadsheet`). One of these rules applies to the whole file.
    """
    lines = read_lines(path)
    for line in lines:
        if '"' in line:
            break
        yield line.split(gap)
    else:
        return
    lines = itertools.chain([line], lines)
    if not _is_of_spreadsheet(path, gap):
        yield from (line.split(gap) for line in lines)
        return
    say_once(f"{path}: cells are quoted as spreadsheets do; the quotes are not part of the text")
    yield from csv.reader((line + "\n" for line in lines), strict=True, delimiter=gap)


def _is_of_spreadsheet(path: str, gap: str) -> bool:
    """True if each cell with a quotation mark is quoted as in CSV (RFC 4180, 2.5 to 2.7), and the marks
    cannot just be text: some quoted cell has a doubled mark, a line break or the separator, or all cells are
    quoted.
    """
    mark = re.escape(gap)
    cell = f'(?:"(?:[^"]|"")*"|[^"{mark}]*)'
    row = re.compile(f"{cell}(?:{mark}{cell})*")
    unusual = re.compile(f'[^"{mark}]""|""[^"{mark}]|(?:^|{mark})"[^"]*{mark}[^"]*"')
    is_unusual, are_all_quoted, begun = False, True, ""
    for line in read_lines(path):
        begun = f"{begun}\n{line}" if begun else line
        if begun.count('"') % 2:
            if begun.count("\n") > _MOST_LINES:
                return False
            continue  # a line break within a cell
        if not row.fullmatch(begun):
            return False
        is_unusual = is_unusual or "\n" in begun or bool(unusual.search(begun))
        count = len(re.findall(f'(?:^|{mark})"', begun))
        are_all_quoted = are_all_quoted and (not begun or count > begun.count(gap))
        begun = ""
    return not begun and (is_unusual or are_all_quoted)


def named_rows(path: str, suffix: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, values by column) of the rows of a .jsonl or .parquet file."""
    if suffix == ".parquet":
        yield from enumerate(parquet_rows(path), start=1)
        return
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield number, _json_row(line, f"{path}:{number}")


def rows_by_name(path: str, suffix: str, delimiter: str | None) -> Iterator[dict[str, Any]]:
    """The rows of any kind of text file that the hub's library reads, as dicts from column to value.
    InputError if a row does not have the columns of the first row.
    """
    if suffix == ".txt":
        yield from ({"text": line} for line in read_lines(path))
    elif suffix in SEPARATORS:
        rows = text_rows(path, suffix, delimiter)
        header = next(rows, (0, []))[1]
        _once([(name, None) for name in header], path)
        for number, row in rows:
            if len(row) != len(header):
                raise InputError(f"{path}: row {number} must have {len(header)} columns, but has {len(row)}")
            yield dict(zip(header, row))
    elif _begins_with_bracket(path):
        try:
            rows_of_array = json.loads("\n".join(read_lines(path)))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: must be a JSON array of objects: {error}") from None
        if other := next((row for row in rows_of_array if not isinstance(row, dict)), None):
            raise InputError(f"{path}: must be a JSON array of objects, but has {str(other)[:40]!r}")
        yield from rows_of_array
    else:
        yield from (row for _, row in named_rows(path, suffix))


def _begins_with_bracket(path: str) -> bool:
    first = next((line for line in read_lines(path) if line.strip()), "")
    return first.lstrip().startswith("[")


def _read_text_table(
    path: str, columns: Columns, rows: Iterator[tuple[int, list[str]]], damaged: DamagedRows
) -> Iterator[Pair]:
    """The two columns of each row. Columns given by number, from 1 on, mean that there is no header."""
    header: list[str] = []
    for number, row in rows:
        if not header:
            header = row
            src, tgt = (_column(column, header, path) for column in columns)
            if isinstance(columns[0], str):
                continue
        if len(row) != len(header):
            damaged.add(number, f"must have {len(header)} columns, but has {len(row)}")
            continue
        yield _sentence(row[src]), _sentence(row[tgt])


_SHOWN_COLUMNS = 20  # in an error


def _column(name: str | int, columns: list[str], location: str) -> int:
    """The index of a column, given by its name, or by its number, counting from 1."""
    if isinstance(name, int):
        if name > len(columns):
            raise InputError(f"{location}: there is no column {name}; the table has {len(columns)}")
        return name - 1
    if name not in columns:
        shown = columns[:_SHOWN_COLUMNS]
        names = ", ".join(column if len(column) <= 40 else f"{column[:40]}…" for column in shown)
        names += f" and {len(columns) - len(shown)} more" if len(columns) > len(shown) else ""
        delimiter = next((one for one in ";|\t," if len(columns) == 1 and one in columns[0]), None)
        if delimiter is not None:
            raise InputError(
                f"{location}: must have a column `{name}`, but its only column is {names}; if {delimiter!r} "
                f"separates the columns, set `delimiter: {json.dumps(delimiter)}`"
            )
        raise InputError(
            f"{location}: no column `{name}`; the columns are {names}; set `columns: [source, target]`; "
            "for a table without header give their numbers, `columns: [1, 2]`"
        )
    if columns.count(name) > 1:
        numbers = ", ".join(str(number) for number, one in enumerate(columns, 1) if one == name)
        raise InputError(
            f"{location}: must have one column `{name}`, but columns {numbers} have this name; rename all "
            "but one"
        )
    return columns.index(name)


def _read_named(
    path: str, columns: list[str], rows: Iterator[tuple[int, dict[str, Any]]], damaged: DamagedRows
) -> Iterator[Pair]:
    is_first = True
    for number, row in rows:
        if not is_first and (lacking := _missing(row, columns)):
            damaged.add(number, f"must have `{lacking}`, but has {', '.join(row) or 'nothing'}")
            continue
        pair = pair_of(row, columns, f"{path}:{number}")  # InputError if the first row lacks a column
        try:
            "".join(pair).encode()
        except UnicodeEncodeError:  # JSON can encode half a surrogate pair: "\\ud800"
            problem = "must be valid Unicode text, but holds half a surrogate pair"
            if is_first:
                raise InputError(f"{path}:{number}: {problem}") from None
            damaged.add(number, problem)
            continue
        is_first = False
        yield pair


def _missing(row: dict[str, Any], columns: list[str]) -> str | None:
    """The first column that the row lacks, or None."""
    nested = row.get("translation")
    fields = nested if isinstance(nested, dict) and not all(name in row for name in columns) else row
    return next((name for name in columns if name not in fields), None)


def _json_row(line: str, location: str) -> dict[str, Any]:
    """The JSON object in a line of a .jsonl file; InputError if there is none."""
    must = f"{location}: must be a JSON object a line"
    if line.lstrip().startswith("["):
        raise InputError(f"{must}, but is a JSON array; `jq -c '.[]' FILE` writes its objects as lines")
    try:
        row = json.loads(line, object_pairs_hook=lambda pairs: _once(pairs, location))
    except RecursionError:
        raise InputError(f"{location}: is nested too deeply") from None
    except ValueError as error:  # also for a number with thousands of digits
        raise InputError(f"{must}: {getattr(error, 'msg', error)}") from None
    if not isinstance(row, dict):
        raise InputError(f"{must}, but is {line[:40]!r}")
    return row


def _once(pairs: list[tuple[str, Any]], location: str) -> dict[str, Any]:
    """A dict of the keys and values of a JSON object. InputError for a duplicate key."""
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"{location}: must have each key once, but has `{twice}` twice; rename one of them")
    return row


def parquet_rows(path: str, *wanted: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file, with the first of the `wanted` lists of columns that it has, or all
    columns.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(open_file(path) if is_url(path) else path)
    except FileNotFoundError:
        raise InputError(missing(path)) from None
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: must be a parquet file: {error}") from None
    _once([(name, None) for name in table.schema_arrow.names], path)
    names = set(table.schema_arrow.names)
    columns = next((some for some in wanted if set(some) <= names), None)
    batches = table.iter_batches(batch_size=10_000, columns=columns)
    while True:
        try:
            rows = next(batches).to_pylist()
        except StopIteration:
            return
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise InputError(f"{path}: is damaged or holds text that is not UTF-8: {error}") from None
        yield from rows


def pair_of(row: dict[str, Any], columns: list[str], location: str) -> Pair:
    """The two columns of a row, which may stand inside a `translation` column, as the WMT sets have it."""
    nested = row.get("translation")
    if isinstance(nested, dict) and not all(name in row for name in columns):
        row = nested
    for name in columns:
        _column(name, list(row), location)
    src, tgt = (row[name] for name in columns)
    if not (isinstance(src, str | None) and isinstance(tgt, str | None)):
        raise InputError(
            f"{location}: columns `{columns[0]}` and `{columns[1]}` must hold text, but hold {src!r} "
            f"and {tgt!r}"
        )
    return _sentence(src or ""), _sentence(tgt or "")


def _sentence(text: str) -> str:
    """The text with newlines replaced by spaces: a sentence must be one line."""
    return " ".join(text.split("\n"))


def _check_columns(columns: Any) -> Any:
    if columns is None:
        return columns
    kinds = {type(column) for column in columns} if isinstance(columns, list) and len(columns) < 3 else set()
    if kinds != {str} and not (kinds == {int} and min(columns) > 0):
        raise ValueError(f"columns must be {TWO_COLUMNS}, but is {columns!r}")
    return columns


class FileCorpus(Corpus):
    """One file of pairs: .tsv, .csv, .jsonl, .tmx (plain, .gz, .bz2, .xz or .zst), .parquet, or .zip in
    OPUS's Moses format.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("file",)
    EXAMPLE: ClassVar[str] = "{file: ...}"

    file: str
    """The file, or a pattern of several (`part-*.tsv.gz`); the ending sets the format. For .parquet also a
    URL: `s3://bucket/part-*.parquet`.
    """
    columns: Annotated[Columns | None, BeforeValidator(_check_columns)] = None
    """Source and target columns, or the text column, by name, or by number from 1 for a table without
    header; by default the languages. For .tmx and .zip these are language codes.
    """
    delimiter: str | None = Field(None, min_length=1, max_length=1)
    """Column separator of .tsv and .csv; by default a tab and a comma."""

    damaged_rows: Literal["refuse", "drop"] = "refuse"
    """What to do with table rows whose columns differ from the first row's: refuse the corpus, or drop the
    rows. `inspect` lists them.
    """

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        yield from wrong_number_of_columns(self.columns, self.is_text)

    @property
    def has_both_sides(self) -> bool:
        return self.columns is not None and len(self.columns) == 2

    def _both_columns(self, languages: Languages) -> Columns:
        """Source and target column; for plain text the same column twice."""
        columns = self.columns or list(languages)
        return columns * 2 if len(columns) == 1 else columns

    def describe(self) -> str:
        return self.file

    @property
    def is_remote(self) -> bool:
        return is_url(self.file)

    def local_files(self) -> list[Path]:
        return [] if self.is_remote else [Path(file) for file in matching(self.file)]

    def identity(self) -> dict[str, Any]:
        facts = super().identity()
        return facts | {"urls": facts_of(self.file)} if self.is_remote else facts

    def parts(self) -> list[Corpus]:
        return [self.model_copy(update={"file": file}) for file in matching(self.file)]

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        if len(parts := self.parts()) > 1:
            return chain.from_iterable(part.stored_pairs(languages) for part in parts)
        suffix = Path(without_compression(self.file)).suffix.lower()
        if self.is_remote and suffix != ".parquet":
            raise InputError(f"{self.file}: a file by its URL must be .parquet; copy others to this machine")
        columns = self._both_columns(languages)
        if suffix in TABLES:
            return self._rows(columns, suffix)
        names = [str(column) for column in columns]
        if suffix == ".tmx":
            return read_tmx(self.file, names)
        if suffix == ".zip":
            return read_moses_zip(self.file, names)
        raise InputError(
            f"{self.file}: a corpus file must end in .tsv, .csv, .jsonl or .tmx ({', '.join(COMPRESSED)} may "
            "follow), .parquet or .zip (Moses format)"
        )

    def damaged(self, languages: Languages) -> dict[int, str]:
        suffix = Path(without_compression(self.file)).suffix.lower()
        problems: dict[int, str] = {}
        before = 0
        for file in matching(self.file) if suffix in TABLES else ():
            columns, rows = self._both_columns(self.stored_languages(languages)), DamagedRows()
            count = sum(1 for _ in read_rows(file, columns, suffix, self.delimiter, rows))
            problems |= {before + number: problem for number, problem in rows.problems.items()}
            has_header = suffix in SEPARATORS and isinstance(columns[0], str)
            before += has_header + count + len(rows.problems)
        return problems

    def _rows(self, columns: Columns, suffix: str) -> Iterator[Pair]:
        damaged = DamagedRows()
        yield from read_rows(self.file, columns, suffix, self.delimiter, damaged)
        if not damaged.problems:
            return
        if self.damaged_rows == "refuse":
            raise InputError(
                f"{self.file}: {damaged.summary()}; correct the file, or leave such rows out with "
                "`damaged_rows: "
                "drop` (`transformer-mt inspect` lists all)"
            )
        _say_dropped(self.file, len(damaged.problems), damaged.summary())


@lru_cache  # once, although a corpus is read several times
def _say_dropped(file: str, count: int, summary: str) -> None:
    say(f"{file}: {count:,} damaged rows are left out; {summary}")
