"""A model's translations of test sets, made once and kept with it; the record of where a file comes from."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.evaluation.set_evaluation import evaluate, rows_of
from transformer_mt.files import digest, set_aside, write_text
from transformer_mt.messages import say
from transformer_mt.run_folder import RunFolder, facts_of
from transformer_mt.text.lines import read_lines, without_compression
from transformer_mt.translator import Translator
from transformer_mt.version import RESULTS


def start_over(folder: Path, inputs: Sequence[Path]) -> None:
    """Move an old folder aside. InputError if it contains one of `inputs`, which are still needed."""
    if not folder.is_dir():
        return
    for path in inputs:
        if path.resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{path}: must be outside {folder}, which is moved aside; move it elsewhere first"
            )
    say(f"the old folder is now {set_aside(folder)}")


def check_origin(file: Path, facts: Mapping[str, str], origin: Path) -> None:
    """InputError if `file`, which may be unfinished, was made from other facts, or if there is no `origin`.
    Facts that `origin` does not record are not compared.
    """
    before = facts_of(origin)
    if not before:
        raise InputError(
            f"{file}: must be a file that this command made, but {origin.name} next to it is missing; name "
            "another ",
            Setting("out"),
        )
    if changed := _changed(before, facts):
        raise InputError(
            f"{file}: was made with another {' and another '.join(changed)}; remove it, or name another ",
            Setting("out"),
        )


def set_other_aside(file: Path, facts: Mapping[str, str], origin: Path) -> None:
    """Move the file aside if it was made from other facts, and say which changed."""
    changed = _changed(facts_of(origin), facts)
    if not (changed and file.exists() and file.stat().st_size):
        return
    numbered = (file.with_name(f"{file.name}.old-{number}") for number in itertools.count(1))
    aside = next(path for path in numbered if not path.exists())
    file.rename(aside)
    say(f"{file}: was made with another {' and another '.join(changed)}; that is now {aside.name}")


def _changed(before: Mapping[str, str], facts: Mapping[str, str]) -> list[str]:
    """The names of the facts that differ, as far as they were recorded."""
    return [name for name in facts if before.get(name, facts[name]) != facts[name]]


def record_origin(origin: Path, facts: Mapping[str, Any]) -> None:
    """Write what a file is made from."""
    write_text(origin, json.dumps(dict(facts), indent=1, ensure_ascii=False) + "\n")


def read_translations(file: Path, test: EvaluationSet) -> list[str]:
    """Read translations from a text file with one translation per line, or from a .jsonl or .json file with
    one object per line, from its key `translation`.

    InputError if they are not translations of the test set's sources.
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
                f"{file}:{number}: must be the translation of {source[:60]!r} of {test.corpus}, but its "
                f"source is {str(row['source'])[:60]!r}"
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


def translated(folder: RunFolder, tests: Sequence[EvaluationSet], device: str) -> list[list[str]]:
    """The translations of each test set by the model in the folder. Translations that are kept there are
    reused if the model's weights and search are still the same.
    """
    config, weights = folder.config(), folder.weights_digest()
    usual = config.data.source_lang, config.data.target_lang
    tags = folder.tokenizer().control_ids if any(test.tag for test in tests) else {}
    translator, outputs = None, []
    for test in tests:
        if test.tag and test.tag not in tags:
            say(f"{folder}: translating {test.corpus} without {test.tag}, a tag which it does not have")
            test = replace(test, tag=None)
        kept = kept_translations(folder, test, config.decode.model_dump(), weights, usual)
        if kept is None:
            translator = translator or Translator.load(folder.path, device)
            say(f"{folder}: translating {test.corpus}, {translator.decode.in_words}")
            try:
                evaluation = evaluate(translator, test, config.evaluate, weights=weights)
            except InputError as error:
                raise InputError(f"{folder}: {test.corpus}: ", *error.parts) from None
            try:
                # Under a name of its own: the folder may hold an `evaluate` of another set or search.
                evaluation.save(folder, replace(test, name=f"compare-{test.name}"))
            except WorkError as error:  # the folder of a shared model may be read-only
                say(f"warning: {error}")
            kept = [row["translation"] for row in evaluation.rows]
        outputs.append(kept)
    return outputs


def kept_translations(
    folder: RunFolder,
    test: EvaluationSet,
    decode: dict[str, Any],
    weights: str | None,
    usual: tuple[str, str],
) -> list[str] | None:
    """The translations of this test set that are kept with the model, if only these weights made them, with
    this search; else None. `usual` are the languages of test sets that do not name theirs.
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
        kept = list(rows_of(rows))
        if [row.get("source") for row in kept] == test.sources:
            return [row["translation"] for row in kept]
    return None
