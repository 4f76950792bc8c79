"""Sentence pairs in TMX files (Translation Memory eXchange 1.4), read unit by unit in flat memory."""

import html
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
from transformer_mt.errors import InputError
from transformer_mt.messages import say, say_once
from transformer_mt.settings.section import Conflict
from transformer_mt.text.languages import base_code, hyphenated
from transformer_mt.text.lines import COMPRESSED, DAMAGED, Pair, open_bytes, without_compression

# Inline elements whose content is formatting code of the original document, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}
_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: str, languages: list[str]) -> Iterator[tuple[str, str]]:
    """(source, target) of each unit that has both languages, formatting codes left out.

    A unit's language fits if it is the same (`de-AT` and `de_at`), or if it is but for script and country
    (`deu` and `de-AT`). Units without them are counted in a note.
    InputError for XML that is damaged or defines entities, and if no unit has both languages.
    """
    from lxml import etree

    seen: dict[str, None] = {}
    units_read = pairs = 0
    with open_bytes(path) as file:
        # No entities, no DTD, no network: a corpus must not read other files or grow without bound.
        units = etree.iterparse(
            file, events=("start", "end"), resolve_entities=False, load_dtd=False, no_network=True
        )
        try:
            for event, element in units:
                if event == "start":
                    if element.getparent() is None:
                        refuse_entities(element.getroottree(), path)
                    continue
                if _name(element) != "tu":
                    continue
                texts = _texts(element)
                units_read += 1
                pair = _of_languages(texts, languages)
                forget(element)
                if pair is not None:
                    pairs += 1
                    yield pair
                else:
                    seen |= dict.fromkeys(texts)
        except etree.XMLSyntaxError as error:
            raise InputError(f"{path}: must be a TMX file, but its XML is damaged: {error.msg}") from None
        except DAMAGED as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
    codes = ", ".join(list(seen)[:10]) or "no text"
    if not pairs:
        raise InputError(
            f"{path}: must have units in {languages[0]} and {languages[1]}, but has {codes}; set `columns`"
        )
    if pairs < units_read:
        say_once(
            f"note: {path}: {units_read - pairs:,} of {units_read:,} units are not in {languages[0]} and "
            f"{languages[1]}, but in {codes}"
        )


def _name(element: Any) -> str:
    """The element's name without its namespace, which some programs write."""
    return str(element.tag).rpartition("}")[2]


def _texts(unit: Any) -> dict[str, str]:
    """The text of the unit in each language, the first one where there are several."""
    texts: dict[str, str] = {}
    for variant in unit.iterfind("{*}tuv"):
        segment = variant.find("{*}seg")
        language = variant.get(_LANG) or variant.get("lang") or ""
        if segment is not None:
            texts.setdefault(language, " ".join("".join(_pieces(segment)).split()))
    return texts


def _pieces(element: Any) -> Iterator[str]:
    """The text inside an element, without formatting codes."""
    yield element.text or ""
    from lxml import etree

    for child in element:
        if child.tag is etree.Entity:  # from a DTD, which is not read: use HTML's
            yield html.unescape(child.text)
        elif isinstance(child.tag, str):  # a comment's tag is a function
            if _name(child) not in _CODES:
                yield from _pieces(child)
            elif child.get("type") in ("lb", "pb") or "<br" in "".join(child.itertext()):
                yield " "
        yield child.tail or ""


def _of_languages(texts: dict[str, str], languages: list[str]) -> tuple[str, str] | None:
    """The texts in two languages. Each language is found by its exact code, else by another code of the same
    language (en for en-US). None if one is missing.
    """
    codes = {hyphenated(code): text for code, text in texts.items()}
    wanted = [hyphenated(language) for language in languages]
    code_of = {code: code for code in wanted if code in codes}
    for code in wanted:
        if code not in code_of:
            left = (other for other in codes if other not in code_of.values())
            alike = next((other for other in left if base_code(other) == base_code(code)), None)
            if alike is None:
                return None
            code_of[code] = alike
    return codes[code_of[wanted[0]]], codes[code_of[wanted[1]]]


def refuse_entities(tree: Any, path: str) -> None:
    """InputError for a document that defines entities: they would be left out of its text, or expand without
    end.
    """
    dtd = tree.docinfo.internalDTD
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise InputError(f"{path}: must not define XML entities, but does; write the characters themselves")


def forget(unit: Any) -> None:
    """Free the unit and those before it: the tree would grow with the file."""
    unit.clear(keep_tail=False)
    while unit.getprevious() is not None:
        del unit.getparent()[0]


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
