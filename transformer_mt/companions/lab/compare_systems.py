"""transformer-mt compare"""

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.cli.model_options import (
    add_evaluation_sets,
    add_external,
    external_metrics,
    files_of_sets,
    load_evaluation_sets,
    select_by_language,
)
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.companions.lab.comparison import System
    from transformer_mt.config import Config
    from transformer_mt.corpora.held_out import EvaluationSet
    from transformer_mt.evaluation.metrics import Metric
    from transformer_mt.run_folder import RunFolder

# Pairs of each training corpus whose words are counted: half a minute.
_MOST_COUNTED = 1_000_000
_ABOUT = (
    "Compare models and files of translations on test sets: scores with intervals, and whether the "
    "differences from the first system are significant. Translations stored with a model are reused if the "
    "same weights and search made them."
)
_SYSTEM = (
    "[NAME=]PATH: a run's folder, an exported one, or files of translations (plain text, or .jsonl of "
    "`evaluate`), one per test set, separated by commas; a repeated NAME is the same system with "
    "another seed"
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.add_argument("systems", metavar="SYSTEM", nargs="+", help=_SYSTEM)
    add_evaluation_sets(parser)
    parser.add_argument(
        "--metrics",
        metavar="NAMES",
        help="separated by commas (default: evaluate.metrics of the first model)",
    )
    add_external(parser)
    parser.add_argument(
        "--to", metavar="LANG", help="only test sets into this language, for multilingual models"
    )
    parser.add_argument(
        "--target-lang", metavar="LANG", help="the target language, if no model has one (BLEU's tokenizer)"
    )
    parser.add_argument(
        "--format",
        choices=["text", "markdown", "latex", "json"],
        default="text",
        help="table format (default: text)",
    )
    parser.add_argument("--html", metavar="FILE", help="also write a page with all sentences side by side")
    parser.add_argument(
        "--significance",
        choices=["bootstrap", "randomisation"],
        default="bootstrap",
        help="how p is computed (default: bootstrap)",
    )
    parser.add_argument(
        "--samples",
        type=positive,
        default=1000,
        metavar="N",
        help="samples of the significance test (default: 1000)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.set_defaults(command=_compare)


@dataclass(frozen=True)
class _Named:
    """A SYSTEM of the command line."""

    name: str
    paths: list[Path]

    @property
    def is_model(self) -> bool:
        return self.paths[0].is_dir()


def _compare(arguments: argparse.Namespace) -> int:
    files_of_sets(arguments)  # refused before any work
    if arguments.html and not Path(arguments.html).absolute().parent.is_dir():
        raise InputError(f"{arguments.html}: must be in a folder that exists")
    from transformer_mt.companions.lab.comparison import check_names, compare
    from transformer_mt.run_folder import open_model

    named = _systems(arguments.systems)
    check_names([system.name for system in named], arguments.significance)
    folder = next((open_model(system.paths[0]) for system in named if system.is_model), None)
    config = folder.config() if folder else None
    metrics = _metrics(arguments, config)
    tests = load_evaluation_sets(arguments, folder, config) or _sets_of_files(named)
    tests = _of_languages(arguments.to, tests, config)
    systems = _translated(named, tests, arguments)
    comparison = compare(tests, systems, metrics, arguments.significance, arguments.samples)
    print(_written(comparison, arguments.format), end="")
    if arguments.html:
        from transformer_mt.companions.lab.comparison_page import as_html
        from transformer_mt.files import write_text

        try:
            page = as_html(
                comparison, _word_counts(config, comparison.tests), _is_natural(config, arguments.target_lang)
            )
            write_text(Path(arguments.html), page)
        except OSError as error:
            raise WorkError(f"{arguments.html}: cannot be written: {error.strerror}") from None
        say(f"{arguments.html}: the sentences side by side")
    return 0


def _of_languages(
    target: str | None, tests: "list[EvaluationSet]", config: "Config | None"
) -> "list[EvaluationSet]":
    """The test sets into the target language. Sets that do not name their languages, such as files, are
    assumed to be in it.
    """
    if config is None:
        if target:
            raise InputError("--to requires a model, but all systems are files")
        return tests
    from transformer_mt.translation.planner import find_direction

    data, usual = config.data, (config.data.source_lang, config.data.target_lang)
    if any(test.languages is None for test in tests):
        if target is None and len(data.targets) > 1:
            raise InputError(
                Setting("to"), f" must be one of {', '.join(data.targets)}, the model's target languages"
            )
        directions = data.directions if len(data.targets) > 1 else [usual]
        languages = find_direction(directions, target, None, usual)
        tests = [replace(test, languages=test.languages or languages) for test in tests]
    return select_by_language(tests, data.directions, target, None)


def _systems(texts: list[str]) -> list[_Named]:
    named = [("", text) if Path(text).exists() or "=" not in text else text.split("=", 1) for text in texts]
    paths_of = [[Path(path) for path in paths.split(",")] for _, paths in named]
    for path in chain(*paths_of):
        if not path.exists():
            raise InputError(f"{path}: no such file or folder; a system is [NAME=]PATH")
    short = ["" if name else _short_name(paths[0]) for (name, _), paths in zip(named, paths_of)]
    given = [(name, [path.resolve() for path in paths]) for (name, _), paths in zip(named, paths_of)]
    if twice := next((paths[0] for name, paths in zip(given, paths_of) if given.count(name) > 1), None):
        raise InputError(
            f"each system must be given once, but {twice} is given twice; use NAME=PATH for seeds"
        )
    explicit = {name for name, _ in named}
    systems = []
    for (name, _), paths, short_name in zip(named, paths_of, short):
        if len(paths) > 1 and any(path.is_dir() for path in paths):
            raise InputError(f"{paths[0]}: commas may join only files; give each model as a separate system")
        if not name:
            name = (
                short_name
                if short.count(short_name) == 1 and short_name not in explicit
                else ",".join(map(str, paths))
            )
        systems.append(_Named(name, paths))
    return systems


def _short_name(path: Path) -> str:
    """The name of the folder or file; for a file that `evaluate` wrote in a run's folder, the run's name."""
    if run := _run_with(path):
        return run.path.name
    path = path.resolve()
    return path.name if path.is_dir() else path.stem


def _run_with(path: Path) -> "RunFolder | None":
    """The run in whose folder `evaluate` wrote the file."""
    from transformer_mt.run_folder import RunFolder

    run = RunFolder(path.resolve().parent.parent)
    return run if run.translations_file(path.stem) == path.resolve() and run.is_run else None


def _metrics(
    arguments: argparse.Namespace, config: "Config | None"
) -> "Callable[[EvaluationSet], list[Metric]]":
    from transformer_mt.config.decode_section import EvaluateConfig, metric_name
    from transformer_mt.evaluation.metrics import build_metrics, metrics_by_test
    from transformer_mt.parts import names_of

    target_lang = arguments.target_lang or (config.data.target_lang if config else None)
    if not target_lang:
        raise InputError("no system is a model with a target language; give --target-lang LANG")
    names = [metric_name(name.strip()) for name in (arguments.metrics or "").split(",") if name.strip()]
    for name in names:
        known = [name for names in names_of("metric") for name in names]
        if name not in known:
            raise InputError(f"--metrics must be of {', '.join(known)}, but has {name}")
    rules = config.evaluate if config else EvaluateConfig()
    names = list(dict.fromkeys(names))
    metrics = build_metrics(rules, target_lang, names)
    external = external_metrics(arguments, [metric.name for metric in metrics])
    return metrics_by_test(rules, target_lang, names, external)


def _sets_of_files(named: list[_Named]) -> "list[EvaluationSet]":
    """The test sets whose sources and references are with the translations."""
    from transformer_mt.companions.lab.translated import set_of_file

    for system in named:
        if not system.is_model and all(path.name.lower().endswith(".jsonl") for path in system.paths):
            return [set_of_file(path, number) for number, path in enumerate(system.paths)]
    raise InputError(
        "there must be a test set, but neither a model's config nor a .jsonl file names one; give --source "
        "FILE --reference FILE"
    )


def _translated(
    named: list[_Named], tests: "list[EvaluationSet]", arguments: argparse.Namespace
) -> "list[System]":
    from transformer_mt.companions.lab.comparison import System
    from transformer_mt.companions.lab.translated import read_translations, translated
    from transformer_mt.evaluation.set_evaluation import SystemRecord
    from transformer_mt.run_folder import open_model

    for system in named:  # before any work
        if not system.is_model and len(system.paths) != len(tests):
            raise InputError(
                f"{system.name}: must have one file per test set, separated by commas, but has "
                f"{len(system.paths)} for {len(tests)}"
            )
    read = [
        None if system.is_model else list(map(read_translations, system.paths, tests)) for system in named
    ]
    runs: dict[str, list[list[list[str]]]] = {}
    folders: dict[str, list[RunFolder]] = {}
    searches: dict[str, list[str]] = {}
    seeds: dict[str, list[int]] = {}
    for system, of_files in zip(named, read):
        folder = open_model(system.paths[0]) if system.is_model else _run_with(system.paths[0])
        run = of_files or translated(open_model(system.paths[0]), tests, arguments.device)
        runs.setdefault(system.name, []).append(run)
        folders.setdefault(system.name, []).extend([folder] if folder else [])
        config = folder.config() if folder and system.is_model else None
        searches.setdefault(system.name, []).extend([config.decode.in_words] if config else _searches(system))
        seeds.setdefault(system.name, []).extend([config.seed] if config else [])
    systems = []
    for name, outputs in runs.items():
        record = SystemRecord(folders[name])
        seen = tuple(map(record.share, tests)) if folders[name] else ()
        search = " and ".join(dict.fromkeys(searches[name]))
        of_runs = tuple(seeds[name]) if len(seeds[name]) == len(outputs) else ()
        systems.append(System(name, outputs, seen, search, of_runs))
    return systems


def _searches(system: _Named) -> list[str]:
    """The search behind each file, in words; NOT_KNOWN if `evaluate` did not record it."""
    from transformer_mt.companions.lab.comparison import NOT_KNOWN
    from transformer_mt.run_folder import facts_of

    facts = [facts_of(path.with_suffix(".scores.json")) if _run_with(path) else {} for path in system.paths]
    return [of_file.get("search", NOT_KNOWN) for of_file in facts]


def _word_counts(config: "Config | None", tests: "Sequence[EvaluationSet]") -> "Counter[str] | None":
    """Word counts in the training sources of the first model; None if these are missing."""
    from transformer_mt.companions.lab.comparison import count_words
    from transformer_mt.data.preparation.clean import training_pairs

    if config is None or any(entry.is_remote for entry in config.data.entries):
        return None
    try:
        counts, scored = Counter[str](), {src for test in tests for src in test.sources}  # may be held out
        for entry in config.data.entries:
            pairs = islice(training_pairs(entry, config.data), _MOST_COUNTED)
            counts += count_words(src for src, _ in pairs if src not in scored)
        return counts
    except InputError:
        return None


def _is_natural(config: "Config | None", target_lang: str | None) -> bool:
    from transformer_mt.text.languages import is_natural

    languages = [config.data.source_lang, config.data.target_lang] if config else []
    return all(map(is_natural, [*languages, target_lang or "en"]))


def _written(comparison: Any, form: str) -> str:
    from transformer_mt.companions.lab import comparison_page

    if form == "text":
        return comparison_page.as_text(comparison)
    if form == "markdown":
        return comparison_page.as_markdown(comparison)
    return comparison_page.as_latex(comparison) if form == "latex" else comparison_page.as_json(comparison)
