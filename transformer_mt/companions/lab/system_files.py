"""Files of translations that are compared like models."""

from pathlib import Path

from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import rows_of
from transformer_mt.text.lines import read_lines, without_compression


def read_translations(file: Path, test: EvaluationSet) -> list[str]:
    """The translations in a text file, one a line, or in .jsonl or .json, as `translation` of its objects,
    one a line.

    InputError if they are not those of the test set's sources.
    """
    suffix = Path(without_compression(str(file))).suffix.lower()
    rows = list(rows_of(file)) if suffix in (".jsonl", ".json") else None
    translations = list(read_lines(str(file))) if rows is None else [row["translation"] for row in rows]
    if len(translations) != len(test.sentences):
        raise InputError(
            f"{file}: must have a translation for each of the {len(test.sentences):,} sentences of "
            f"{test.corpus}, but has {len(translations):,}"
        )
    for number, (row, source) in enumerate(zip(rows or [], test.sources), start=1):
        if row.get("source", source) != source:
            raise InputError(
                f"{file}:{number}: must be the translation of {source[:60]!r} of {test.corpus}, but is "
                f"that of {str(row['source'])[:60]!r}"
            )
    return translations


def set_of_file(file: Path, position: int = 0) -> EvaluationSet:
    """The test set whose sources and references are in a .jsonl file of `evaluate`; `position` tells it from
    others of the same file name.
    """
    sentences = []
    for number, row in enumerate(rows_of(file), start=1):
        references = row["references"] if isinstance(row.get("references"), list) else [row.get("reference")]
        texts = [row.get("source"), *references]
        if not references or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{file}:{number}: must have a source and a reference, but has none")
        sentences.append((row["source"], tuple(references)))
    if not sentences:
        raise InputError(f"{file}: a test set must have sentences, but is empty")
    return EvaluationSet(f"{position}-{file.stem}", file.stem, sentences)
