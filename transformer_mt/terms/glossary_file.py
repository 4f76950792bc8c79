"""Glossary files: TSV, CSV and TBX."""

import csv
from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from transformer_mt.errors import InputError
from transformer_mt.terms.glossary import Glossary, Term
from transformer_mt.text.languages import base_code
from transformer_mt.text.lines import read_lines

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_HEADERS = ({"source", "src"}, {"target", "tgt"})


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
    columns = (0, 1)
    for number, row in rows:
        if number == 1 and (named := _columns(row, languages)) is not None:
            columns = named
            continue
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(columns) or not (source := row[columns[0]].strip()):
            separator = "a comma or semicolon" if path.suffix.lower() == ".csv" else "a tab"
            raise InputError(
                f"{path}: each line must have a source term and a target term with {separator} between them, "
                f"but line {number} is {' '.join(row)[:60]!r}"
            )
        targets = (target.strip() for target in row[columns[1]].split("|"))
        yield Term(source, tuple(filter(None, targets)))


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    if path.suffix.lower() != ".csv":
        yield from enumerate((line.split("\t") for line in read_lines(path)), start=1)
        return
    lines = list(read_lines(path))
    first = lines[0] if lines else ""
    delimiter = ";" if first.count(";") > first.count(",") else ","
    yield from enumerate(csv.reader(lines, delimiter=delimiter), start=1)


def _columns(row: list[str], languages: tuple[str, str]) -> tuple[int, int] | None:
    """The columns of source and target that a first row names; None where it is a term."""
    names = [cell.strip().casefold() for cell in row]
    found = []
    for language, usual in zip(languages, _HEADERS):
        own = {language.casefold(), base_code(language)} | usual
        found.append(next((i for i, name in enumerate(names) if name in own), None))
    if found[0] is None or found[1] is None:
        return None
    return found[0], found[1]


def _of_tbx(path: Path, languages: tuple[str, str]) -> Iterator[Term]:
    try:
        with path.open("rb") as file:
            options = {"resolve_entities": False, "load_dtd": False, "no_network": True}
            for _, entry in etree.iterparse(file, tag=("{*}termEntry", "{*}conceptEntry"), **options):
                sources, targets = (_terms_of(entry, language) for language in languages)
                yield from (Term(source, tuple(targets)) for source in sources if targets)
                entry.clear()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; paths are taken from the folder you start in") from None
    except etree.XMLSyntaxError as error:
        raise InputError(f"{path}: must be TBX, but is no XML: {error}") from None


def _terms_of(entry: etree._Element, language: str) -> list[str]:
    found = []
    for part in entry.iterfind("{*}langSet"), entry.iterfind("{*}langSec"):
        for of_language in part:
            if base_code(of_language.get(_LANGUAGE, "").replace("-", "_")) == base_code(language):
                texts = ("".join(term.xpath(".//text()")) for term in of_language.iter("{*}term"))
                found += [" ".join(text.split()) for text in texts]
    return [text for text in found if text]
