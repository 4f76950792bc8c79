"""One file of pairs: a kind of corpus. The file's ending says what it is."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.opus import read_moses_zip
from transformer_mt.corpora.remote import facts_of, is_url, matching
from transformer_mt.corpora.tables import (
    TWO_COLUMNS,
    Columns,
    DamagedRows,
    read_rows,
    wrong_number_of_columns,
)
from transformer_mt.corpora.tmx import read_tmx
from transformer_mt.errors import InputError
from transformer_mt.messages import say
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import COMPRESSED, Pair, without_compression


def _check_columns(columns: Any) -> Any:
    if columns is None:
        return columns
    kinds = {type(column) for column in columns} if isinstance(columns, list) and len(columns) < 3 else set()
    if kinds != {str} and not (kinds == {int} and min(columns) > 0):
        raise ValueError(f"columns must be {TWO_COLUMNS}, but is {columns!r}")
    return columns


_TABLES = (".tsv", ".csv", ".jsonl", ".json", ".parquet")


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
    """The action on table rows whose columns differ from the first row's: stop at the first of them,
    or leave them out. `inspect` lists them.
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
        if suffix in _TABLES:
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
        for file in matching(self.file) if suffix in _TABLES else ():
            columns, rows = self._both_columns(self.stored_languages(languages)), DamagedRows()
            count = sum(1 for _ in read_rows(file, columns, suffix, self.delimiter, rows))
            problems |= {before + number: problem for number, problem in rows.problems.items()}
            has_header = suffix in (".tsv", ".csv") and isinstance(columns[0], str)
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
