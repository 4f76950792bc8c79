"""Glossary files: TSV, CSV and TBX."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.corpora.tables import text_rows
from transformer_mt.corpora.tmx import forget, refuse_entities
from transformer_mt.errors import InputError
from transformer_mt.terms.glossary import Glossary, Term
from transformer_mt.text.languages import base_code, hyphenated
from transformer_mt.text.lines import read_lines

_CODE = re.compile(r"[a-z]{2,3}(?:[-_][a-z0-9]{2,4})*")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_HEADERS = ({"source", "src", "source term"}, {"target", "tgt", "target term"})


def read_glossary(file: str | Path, languages: tuple[str, str]) -> Glossary:
    """The terms of a file: .tbx (TermBase eXchange), .csv (commas or semicolons), else a term a line,
    `source<tab>target`. A first row with the names of the languages, or source and target, chooses columns.
    `a|b` are two targets, an empty one keeps the source. InputError names what cannot be read.
    """
    path = Path(file)
    if path.suffix.lower() == ".tbx":
        terms = list(_of_tbx(path, languages))
    else:
        terms = list(_of_table(path, languages))
    if not terms:
        raise InputError(f"{path}: must have terms of {' and '.join(languages)}, but has none")
    return Glossary(terms, languages)


def _of_table(path: Path, languages: tuple[str, str]) -> Iterator[Term]:
    rows = _rows(path)
    columns, is_named = (0, 1), False
    for number, row in rows:
        if number == 1 and (named := _columns(row, languages)) is not None:
            columns, is_named = named, True
            continue
        has_none = len(row) <= columns[0] or not row[columns[0]].strip()
        if not any(cell.strip() for cell in row) or (has_none and is_named):
            continue
        if has_none or (len(row) <= columns[1] and not is_named):
            separator = "a comma or semicolon" if path.suffix.lower() == ".csv" else "a tab"
            raise InputError(
                f"{path}: each line must have a source term and a target term with {separator} between them, "
                f"but line {number} is {' '.join(row)[:60]!r}"
            )
        source, target = (_normal(row[k]) if k < len(row) else "" for k in columns)
        yield Term(source, tuple(filter(None, map(str.strip, target.split("|")))))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    is_csv = path.suffix.lower() == ".csv"
    first = next(iter(read_lines(path)), "") if is_csv else ""
    rows = text_rows(str(path), ".csv" if is_csv else ".tsv", ";" if ";" in first else None)
    for number, row in rows:
        yield number, [re.sub(r"[ \t]*[\r\n]+[ \t]*", " ", cell) for cell in row]


def _columns(row: list[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """The source and target columns that a header row names; None if the row is no header."""
    names = [cell.strip().casefold() for cell in row]
    columns = []
    for language, usual in zip(languages, _HEADERS):
        code = hyphenated(language)
        exact = [i for i, name in enumerate(names) if hyphenated(name) == code or name in usual]
        close = [
            i for i, name in enumerate(names) if _CODE.fullmatch(name) and base_code(name) == base_code(code)
        ]
        columns.append(next(iter(exact + close), None))
    if columns[0] is None or columns[1] is None:
        return None
    return columns[0], columns[1]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _of_tbx(path: Path, languages: tuple[str, str]) -> Iterator[Term]:
    from lxml import etree  # takes time to import

    try:
        with path.open("rb") as file:
            options = {"resolve_entities": False, "load_dtd": False, "no_network": True}
            for _, entry in etree.iterparse(file, tag=("{*}termEntry", "{*}conceptEntry"), **options):
                refuse_entities(entry.getroottree(), str(path))
                sources, targets = (_terms_of(entry, language) for language in languages)
                yield from (Term(source, tuple(targets)) for source in sources if targets)
                forget(entry)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; paths are relative to the current folder") from None
    except etree.XMLSyntaxError as error:
        raise InputError(f"{path}: must be TBX, but is no XML: {error}") from None


def _terms_of(entry: Any, language: str) -> list[str]:
    """The terms in the language: those with its exact code, else those of its variants."""
    terms: dict[bool, list[str]] = {True: [], False: []}
    for part in entry.iterfind("{*}langSet"), entry.iterfind("{*}langSec"):
        for of_language in part:
            code = of_language.get(_LANGUAGE, "")
            if base_code(code) == base_code(language):
                is_same = hyphenated(code) == hyphenated(language)
                texts = ("".join(term.xpath(".//text()")) for term in of_language.iter("{*}term"))
                terms[is_same] += [_normal(" ".join(text.split())) for text in texts if text.strip()]
    return terms[True] or terms[False]
