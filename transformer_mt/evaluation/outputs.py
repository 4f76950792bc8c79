"""Translations of a test set: those a file holds, or those a model's folder keeps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import to_json, write_text
from transformer_mt.run_folder import RunFolder, facts_of
from transformer_mt.text.lines import read_lines

NOT_ITS_OWN = "other-"
"""Before the names of test sets that something else than the model alone translated, or with another tag."""


def is_of_search(scores: dict[str, Any], decode: DecodeConfig) -> bool:
    """True if the scores that are kept with a model are of this search, whose `auto` may be any value: what
    `evaluate --beam 1` keeps is of another one.
    """
    wanted = decode.model_dump(mode="json")
    used = scores.get("decode", wanted)
    return all(value in ("auto", used.get(key)) for key, value in wanted.items())


def keep_table(folder: RunFolder, name: str, title: str, table: str, weights: str) -> None:
    """Keep a table about the run's model with it, whose `weights` had this digest; its report shows it.
    WorkError if the folder takes none.
    """
    try:
        folder.evaluation.mkdir(exist_ok=True)
        write_text(folder.evaluation / name, table)
        facts = {"weights": weights, "title": title}
        write_text(_facts_file(folder, name), to_json(facts) + "\n")
    except OSError as error:
        raise WorkError(f"{folder}: the table could not be written: {error.strerror}") from None


def kept_tables(folder: RunFolder) -> list[tuple[str, str]]:
    """Title and text of the tables kept with the run's present model."""
    tables = []
    for file in sorted(folder.evaluation.glob("*.md")):
        facts = _facts_file(folder, file.name)
        if matches_model(facts, folder):
            title = str(facts_of(facts).get("title", file.stem))
            tables.append((title, file.read_text(encoding="utf-8")))
    return tables


def _facts_file(folder: RunFolder, name: str) -> Path:
    return folder.evaluation / f"{name}.json"


def matches_model(file: Path, folder: RunFolder) -> bool:
    """True if a JSON file about a model was written for the weights that the run's folder has now. Compares
    the digest in the file, which is None where another model translated, too, as in an ensemble.
    """
    weights = folder.weights_digest()
    return weights is not None and facts_of(file).get("weights") == weights


def rows_of(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file of translations."""
    for number, line in enumerate(read_lines(str(file)), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict) or not isinstance(row.get("translation"), str):
            raise InputError(
                f"{file}:{number}: must be a JSON object with a translation, but is {line[:60]!r}"
            )
        if "\\ud" in line.lower() and _has_lone_surrogate(row):
            raise InputError(
                f"{file}:{number}: must be text, but has half of a surrogate pair; write it again"
            )
        yield row


def _has_lone_surrogate(row: dict[str, Any]) -> bool:
    try:
        to_json(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
