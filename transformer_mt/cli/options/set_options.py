"""The options that name test sets, shared by `evaluate` and `compare`."""

import argparse
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.config import Config, DataConfig
    from transformer_mt.corpora.held_out import AnySet, EvaluationSet
    from transformer_mt.evaluation.external_metric import ExternalMetric
    from transformer_mt.run_folder import RunFolder


def add_evaluation_sets(parser: argparse.ArgumentParser) -> None:
    """--source and --reference."""
    parser.add_argument(
        "--source", metavar="FILE", action="append", default=[], help="sentences to translate, one per line"
    )
    parser.add_argument(
        "--reference",
        metavar="FILE",
        action="append",
        default=[],
        help="their references, one per line; repeat it for several references per --source",
    )


def add_external(parser: argparse.ArgumentParser) -> None:
    """--external."""
    parser.add_argument(
        "--external",
        metavar="NAME=COMMAND",
        action="append",
        default=[],
        help="a metric whose command reads JSON lines and prints one number for each",
    )


def files_of_sets(arguments: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Each source file with those of its references. InputError if the numbers do not fit."""
    sources, references = arguments.source, arguments.reference
    per_source = len(references) // max(1, len(sources))
    if len(references) != per_source * len(sources) or (sources and not per_source):
        raise InputError(
            "each --source must have a --reference, or all the same number of them, but there are "
            f"{len(sources)} --source and {len(references)} --reference"
        )
    return [(source, references[i * per_source : (i + 1) * per_source]) for i, source in enumerate(sources)]


def load_evaluation_sets(
    arguments: argparse.Namespace, folder: "RunFolder | None", config: "Config | None"
) -> list["EvaluationSet"]:
    """The test sets that the arguments name, else those of the model in the folder; none if neither does."""
    from transformer_mt.corpora.held_out import EvaluationSet, read_set
    from transformer_mt.corpora.line_files import FilesCorpus, read_references

    sets: list[EvaluationSet] = []
    if files := files_of_sets(arguments):
        for i, (source, references) in enumerate(files):
            sentences = list(read_references(source, references))
            name = FilesCorpus(source=source, target=references).describe()
            sets.append(EvaluationSet(f"{i}-{Path(source).name}", name, sentences))
        return _not_empty(sets)
    if config is None:
        return []
    path = folder.path if folder else None
    for i, corpus in enumerate(config.data.test):
        sentences = list(read_set(corpus, config.data.languages, path, "test"))
        name, languages = (
            corpus.describe() + _direction(config.data, corpus),
            config.data.languages_of(corpus),
        )
        sets.append(EvaluationSet(f"test-{i}", name, sentences, corpus.tag, languages))
    return _not_empty(sets)


def select_by_language(
    tests: "Sequence[EvaluationSet]",
    directions: Sequence[tuple[str, str]],
    target: str | None,
    source: str | None,
) -> "list[EvaluationSet]":
    """The sets of these languages, as a model of the `directions` calls them. InputError if there is none."""
    from transformer_mt.translation.planner import name_in

    chosen = list(tests)
    for side, language in enumerate((source, target)):
        codes = [direction[side] for direction in directions]
        if language is not None:
            wanted = name_in(codes, language)
            chosen = [
                test for test in chosen if test.languages and name_in(codes, test.languages[side]) == wanted
            ]
    if not chosen:
        requested = [f"from {source}"] * bool(source) + [f"into {target}"] * bool(target)
        known = ", ".join(" to ".join(test.languages) for test in tests if test.languages)
        raise InputError(f"a test set must be {' '.join(requested)}, but those of the model are {known}")
    return chosen


def _direction(data: "DataConfig", corpus: "AnySet") -> str:
    """The languages of a set, where the model has several directions."""
    source, target = data.languages_of(corpus)
    return f" ({source} to {target})" if len(data.directions) > 1 else ""


def _not_empty(tests: "list[EvaluationSet]") -> "list[EvaluationSet]":
    for test in tests:
        if not test.sentences:
            raise InputError(f"{test.corpus}: a test set must have sentences, but is empty")
        if not any(text.strip() for references in test.references for text in references):
            raise InputError(f"{test.corpus}: a test set must have references, but all of them are empty")
    return tests


def named_command(option: str, text: str) -> tuple[str, str]:
    """The two of NAME=COMMAND."""
    name, equals, command = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"{option} must be NAME=COMMAND, but is {text}")
    return name.strip(), command


def external_metrics(arguments: argparse.Namespace, others: Collection[str]) -> list["ExternalMetric"]:
    """The metrics of --external, whose names must not be those of the `others`."""
    from transformer_mt.evaluation.external_metric import ExternalMetric

    scorers = [ExternalMetric(*named_command("--external", text)) for text in arguments.external]
    if len({metric.name for metric in scorers}) < len(scorers):
        raise InputError("each --external must have a different name, but a name occurs twice")
    if same := {metric.name for metric in scorers} & set(others):
        raise InputError(f"--external must not have the name of a metric, but has {same.pop()}")
    return scorers
