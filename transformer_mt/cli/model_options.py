"""Options that several commands share: the model, its engine and device, the search, and test sets."""

import argparse
import gc
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.cli.arguments import Parser, add_flags, check_searches, given, value_of
from transformer_mt.config.decode_section import DecodeConfig
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.messages import say
from transformer_mt.parts import every_name, load_part
from transformer_mt.translation.engines.engine import USUAL_ENGINE, EngineRequest

if TYPE_CHECKING:
    from transformer_mt.config import Config, DataConfig
    from transformer_mt.corpora.held_out import AnySet, EvaluationSet
    from transformer_mt.evaluation.external_metric import ExternalMetric
    from transformer_mt.ranks import Ranks
    from transformer_mt.run_folder import RunFolder
    from transformer_mt.translation.result import Options
    from transformer_mt.translator import Translator

Direction = tuple[str, str]
FileOf = tuple[Direction | None, str]
"""A direction and the file for it. The direction is None if it was not given."""


RESOURCE = "resource."
"""Prefix of the parsed arguments that name files of resources."""


def add_resources(parser: argparse.ArgumentParser) -> list[str]:
    """Add an option such as --glossary for each resource that translations may use. Returns the flags."""
    return _add_each(parser, "", metavar="FILE")


def add_resources_by_direction(parser: argparse.ArgumentParser) -> list[str]:
    """Like `add_resources`, but each option is repeatable and takes a file for each direction."""
    return _add_each(parser, "; repeatable", metavar="[FROM:TO=]FILE", action="append", type=_file_of)


def _add_each(parser: argparse.ArgumentParser, more: str, **how: Any) -> list[str]:
    flags = []
    for name in every_name("resource"):
        flag = f"--{name.replace('_', '-')}"
        try:
            text = str(load_part("resource", name).help).replace("%", "%%")
            parser.add_argument(flag, dest=f"{RESOURCE}{name}", help=f"{text}{more}", **how)
        except (WorkError, AttributeError, argparse.ArgumentError) as error:  # of a package of others
            say(f"note: the resource {name} is left out: {error}")
        else:
            flags.append(flag)
    return flags


def direction_of(text: str) -> Direction:
    """The languages of `en:de`."""
    source, colon, target = text.partition(":")
    if not (source and colon and target):
        raise argparse.ArgumentTypeError(f"must be two languages such as en:de, but is {text}")
    return source, target


def _file_of(text: str) -> FileOf:
    direction, is_given, file = text.partition("=")
    return (direction_of(direction), file) if is_given and ":" in direction else (None, text)


def has_ranks() -> bool:
    """True if torchrun started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1


def join_ranks(translator: "Translator") -> "Ranks":
    """The processes that translate together. InputError for an engine that uses all cores by itself."""
    from transformer_mt.ranks import LONG_TIMEOUT, Ranks
    from transformer_mt.translation.engines.torch_engine import TorchEngine

    if not isinstance(translator.engine, TorchEngine):
        raise InputError(
            f"torchrun must have a run's folder and --engine torch; {translator.engine.name} uses all cores "
            "by itself"
        )
    return Ranks.join(translator.engine.device, LONG_TIMEOUT)  # a person may type the input


@contextmanager
def translating_together(translator: "Translator") -> Iterator["Translator | None"]:
    """On rank 0, which runs the command, yield a translator that searches with all ranks. The other ranks
    search for rank 0, and get None when it is done.
    """
    if not has_ranks():
        yield translator
        return
    from transformer_mt.ranks import refuse_lost_rank
    from transformer_mt.translation.engines.divided_engine import DividedEngine

    ranks = join_ranks(translator)
    engine = DividedEngine(translator.engine, ranks)
    try:
        if ranks.is_rank_zero:
            yield translator.with_engine(engine)
            engine.let_go()
        else:
            engine.follow()
            yield None
    except RuntimeError as error:
        refuse_lost_rank(error)
        raise
    ranks.leave()


_DECODE = "decode."


@dataclass(frozen=True)
class ModelRequest:
    """The model of a command, what computes it, and the settings of its search."""

    model: str
    ensemble: tuple[str, ...] = ()
    source_lang: str | None = None
    target_lang: str | None = None
    engine: EngineRequest = USUAL_ENGINE
    decode: Mapping[str, Any] = field(default_factory=dict)
    """The keys of `decode` that were given."""
    resources: Mapping[str, str] = field(default_factory=dict)
    """Files that translations follow, by the names of their resources."""

    @classmethod
    def of(cls, arguments: argparse.Namespace, model: str | None = None, **changes: Any) -> "ModelRequest":
        """The request of a command line. `model`, if given, replaces the argument of this name."""
        values = vars(arguments)
        resources = given(arguments, RESOURCE)
        selects = any(load_part("resource", name).needs_selection for name in resources)
        engine = EngineRequest(
            arguments.engine,
            arguments.device,
            arguments.dtype,
            has_rules=selects or bool(values.get("retry")),
            has_prefixes=bool(values.get("prefix") or values.get("prefixes")),
        )
        request = cls(
            model=model or arguments.model,
            ensemble=tuple(values.get("ensemble", ())),
            source_lang=values.get("from"),
            target_lang=values.get("to"),
            engine=engine,
            decode=given(arguments, _DECODE) | _assigned(values.get("set", [])),
            # `serve` has a list of files for each name, one per direction: it reads them itself.
            resources={name: file for name, file in resources.items() if isinstance(file, str)},
        )
        return replace(request, **changes)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        return self.source_lang, self.target_lang

    @property
    def is_usual(self) -> bool:
        """True if the model translates without an ensemble or resources, on its default engine and dtype."""
        is_plain = not (self.ensemble or self.resources)
        return self.engine.engine == "auto" and self.engine.dtype is None and is_plain

    def run(self) -> "RunFolder":
        """The run of the model."""
        from transformer_mt.run_folder import open_model

        return open_model(self.model, *self.languages)

    def other_runs(self) -> "list[RunFolder]":
        """The runs of the rest of an ensemble."""
        from transformer_mt.run_folder import open_model

        return [open_model(model, *self.languages) for model in self.ensemble]


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, its engine, the other models of an ensemble, and the languages."""
    parser.add_argument(
        "model", metavar="MODEL", help="a run's folder, such as runs/demo, an export or a public model"
    )
    add_engine(parser)
    parser.add_argument(
        "--ensemble",
        metavar="MODEL",
        action="append",
        default=[],
        help="another run of an ensemble; repeatable",
    )
    if isinstance(parser, Parser):
        parser.hints |= {
            "--gpu": "write --device cuda", "--cuda": "write --device cuda", "--src": "write --from LANG",
            "--tgt": "write --to LANG", "--trg": "write --to LANG", "--source-lang": "write --from LANG",
            "--target-lang": "write --to LANG",
        }  # fmt: skip
    parser.add_argument("--to", metavar="LANG", help="target language, if the model has several")
    parser.add_argument(
        "--from", dest="from", metavar="LANG", help="source language, if the model has several"
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """The engine and device that compute a model."""
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps")
    parser.add_argument(
        "--dtype",
        choices=["float32", "bfloat16", "float16", "int16", "int8"],
        help="number format (default: float32, or the export's)",
    )
    parser.add_argument(
        "--engine",
        choices=["auto", *every_name("engine")],
        default="auto",
        help="inference engine (default: for an export the engine that opens it; for a run torch, or on a "
        "CPU the engine of the export in its folder)",
    )


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the settings of the search. A setting that is not given keeps the config's value."""
    group = parser.add_argument_group("search", "Settings that override `decode` in the model's config.")
    add_flags(group, DecodeConfig, _DECODE, [key for key in DecodeConfig.model_fields if key != "stages"])
    group.add_argument(
        "--set", metavar="decode.KEY=VALUE", action="append", default=[],
        help="a search setting, as named by `transformer-mt config show`; repeatable",
    )  # fmt: skip


def load_translator(
    request: ModelRequest, options: "Options | None" = None, any_direction: bool = False
) -> "Translator":
    """Load the translator of a request.

    Raises InputError before loading if a setting or one of the `options` has no effect. Also raises it if the
    model has several target languages and none is named, unless `any_direction` is set.
    """
    run, others = request.run(), request.other_runs()
    if run.metrics_file.exists() and not (run.is_finished or run.is_export):
        train, step = run.config().train, run.newest_checkpoint_step()
        say(f"note: the training of {run} has not ended: update {step:,} of at most {train.max_updates:,}")
    from transformer_mt.translator import Translator

    def check(settings: DecodeConfig) -> None:
        # A config may have settings for other searches; one that is given must have an effect.
        check_searches(DecodeConfig, _DECODE, dict(request.decode), settings.search)
        if options is not None:
            options.check(settings)

    translator = Translator.of_run(run, request.engine, request.decode, others, check)
    if translator.engine.name == "torch" and translator.engine.is_on_cpu:
        from transformer_mt.device import keep_freed_memory

        keep_freed_memory(one_heap=True)  # decodes faster; this process only translates
    # Processing lines creates many objects but few reference cycles. Looking for cycles took a third of
    # the time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
    translator = _in_direction(translator, *request.languages, any_direction)
    return translator.with_files(**request.resources)


def _assigned(words: list[str]) -> dict[str, Any]:
    """The settings of --set decode.KEY=VALUE."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key.startswith(_DECODE) or not equals:
            raise InputError(f"--set must be decode.KEY=VALUE, but is {word}")
        settings[key.removeprefix(_DECODE)] = value_of(value)
    return settings


def _in_direction(
    translator: "Translator", source: str | None, target: str | None, any_direction: bool
) -> "Translator":
    """The translator between the languages of --from and --to."""
    targets = list(dict.fromkeys(target for _, target in translator.directions))
    if target is None and len(targets) > 1 and not any_direction:
        raise InputError(Setting("to"), f" must be one of {', '.join(targets)}, the model's target languages")
    if target is None and source is None:
        return translator
    translator = translator.towards(target, source)
    direction = translator.source_lang, translator.target_lang
    if direction not in translator.directions:
        say(f"note: the model was not trained to translate {direction[0]} to {direction[1]}")
    return translator


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
    """Each source file with its files of references. InputError if a source has more of them than another."""
    sources, references = arguments.source, arguments.reference
    per_source = len(references) // max(1, len(sources))
    if len(references) != per_source * len(sources) or (sources and not per_source):
        raise InputError(
            "each --source must have the same number of --reference, at least one, but there are "
            f"{len(sources)} --source and {len(references)} --reference"
        )
    return [(source, references[i * per_source : (i + 1) * per_source]) for i, source in enumerate(sources)]


def load_evaluation_sets(
    arguments: argparse.Namespace, folder: "RunFolder | None", config: "Config | None"
) -> list["EvaluationSet"]:
    """The test sets that the arguments name; without any, the test sets of the model in the folder."""
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
    """The sets with these languages, compared by the names that they have in the model's `directions`:
    `de_AT` is `de` if the model has no `de_AT`. Raises InputError if there is no such set.
    """
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
        raise InputError(f"there is no test set {' '.join(requested)}; the model's test sets are {known}")
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
    """Split NAME=COMMAND into its two parts."""
    name, equals, command = text.partition("=")
    if not equals or not name.strip():
        raise InputError(f"{option} must be NAME=COMMAND, but is {text}")
    return name.strip(), command


def external_metrics(arguments: argparse.Namespace, others: Collection[str]) -> list["ExternalMetric"]:
    """The metrics of --external. InputError for a name that one of the `others` has."""
    from transformer_mt.evaluation.external_metric import ExternalMetric

    scorers = [ExternalMetric(*named_command("--external", text)) for text in arguments.external]
    if len({metric.name for metric in scorers}) < len(scorers):
        raise InputError("each --external must have a different name, but a name occurs twice")
    if same := {metric.name for metric in scorers} & set(others):
        raise InputError(f"--external must not have the name of a metric, but has {same.pop()}")
    return scorers
