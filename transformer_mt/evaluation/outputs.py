"""Translations of a test set: those a file holds, or those a model's folder keeps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.corpora.evaluation_sets import EvaluationSet
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import digest, write_text
from transformer_mt.runs.folder import RunFolder, facts_of
from transformer_mt.text.compressed import without_compression
from transformer_mt.text.lines import read_lines
from transformer_mt.version import RESULTS

NOT_ITS_OWN = "other-"
"""Before the names of test sets that something else than the model alone translated, or with another tag."""


def read_translations(file: Path, test: EvaluationSet) -> list[str]:
    """The translations in a text file, one a line, or in .jsonl or .json, as `translation` of its objects,
    one a line.

    InputError if they are not those of the test set's sources.
    """
    suffix = Path(without_compression(str(file))).suffix.lower()
    rows = list(_rows(file)) if suffix in (".jsonl", ".json") else None
    translations = list(read_lines(str(file))) if rows is None else [row["translation"] for row in rows]
    if len(translations) != len(test.sentences):
        raise InputError(
            f"{file}: must have a translation for each of the {len(test.sentences):,} sentences of "
            f"{test.corpus}, but has {len(translations):,}"
        )
    for number, (row, source) in enumerate(zip(rows or [], test.sources), start=1):
        if row.get("source", source) != source:
            raise InputError(
                f"{file}:{number}: must be the translation of the sentence of {test.corpus}, but is that of "
                f"another: {str(row['source'])[:60]!r} instead of {source[:60]!r}"
            )
    return translations


def set_of_file(file: Path, position: int = 0) -> EvaluationSet:
    """The test set whose sources and references are in a .jsonl file of `evaluate`; `position` tells it from
    others of the same file name.
    """
    sentences = []
    for number, row in enumerate(_rows(file), start=1):
        references = row["references"] if isinstance(row.get("references"), list) else [row.get("reference")]
        texts = [row.get("source"), *references]
        if not references or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{file}:{number}: must have a source and a reference, but has none")
        sentences.append((row["source"], tuple(references)))
    if not sentences:
        raise InputError(f"{file}: a test set must have sentences, but is empty")
    return EvaluationSet(f"{position}-{file.stem}", file.stem, sentences)


def kept_translations(
    folder: RunFolder,
    test: EvaluationSet,
    decode: dict[str, Any],
    weights: str | None,
    usual: tuple[str, str],
) -> list[str] | None:
    """The translations kept with the model, if these weights alone made them of this test set by this search;
    else None. `usual` are the languages of sets that name none.
    """
    wanted = {"decode": decode, "tag": test.tag, "weights": weights, "results": RESULTS}
    for scores in folder.scores_files():
        rows, facts = folder.translations_file(folder.set_of(scores)), facts_of(scores)
        if not rows.exists() or any(facts.get(key) != value for key, value in wanted.items()):
            continue
        if tuple(facts.get("languages", usual)) != (test.languages or usual):
            continue
        if facts.get("rows", digest(rows)) != digest(rows):  # another process has written one of the two
            continue
        kept = list(_rows(rows))
        if [row.get("source") for row in kept] == test.sources:
            return [row["translation"] for row in kept]
    return None


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
        write_text(_facts_file(folder, name), json.dumps(facts) + "\n")
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


def _rows(file: Path) -> Iterator[dict[str, Any]]:
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
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
