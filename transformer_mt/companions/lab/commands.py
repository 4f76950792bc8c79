"""backtranslate, distill, rerank, sweep and tune."""

import argparse
import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser, existing_files, positive, share
from transformer_mt.cli.model_options import (
    ModelRequest,
    add_model,
    add_search,
    has_ranks,
    join_ranks,
    load_translator,
    named_command,
)
from transformer_mt.errors import InputError, Interrupted, Setting, WorkError
from transformer_mt.files import to_json
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.companions.lab.synthetic import Teacher
    from transformer_mt.settings.corpus_keys import FilterConfig

_BACKTRANSLATE = (
    "Make a training corpus from monolingual text: a target-to-source model, or a language model that a YAML "
    "file describes, writes the sources. With the YAML file of a chain instead of MODEL and TEXT: train that "
    "model, translate, and train the forward model. Rerun it to resume."
)
_RULES = ("copy", "script", "language", "numbers", "markup", "encoding")


def add_backtranslate(parser: Parser) -> None:
    parser.description = _BACKTRANSLATE
    add_model(parser)
    parser.add_argument(
        "texts", metavar="TEXT", nargs="*", default=[],
        help="file of sentences in the model's source language, one per line",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out", metavar="FILE",
        help="the corpus, in JSON lines; with a YAML file the chain's folder (default: runs/NAME)",
    )  # fmt: skip
    parser.add_argument(
        "--filter", metavar="RULES",
        help=f"cleaning rules for the pairs, of {', '.join(_RULES)} (default: copy,script)",
    )  # fmt: skip
    parser.add_argument(
        "--keep", metavar="SHARE", type=share,
        help="keep this share of the pairs, those with the best scores (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--fresh", action="store_true",
        help="start over with a YAML file; the old folder is moved aside, nothing is deleted",
    )  # fmt: skip
    add_search(parser)
    parser.set_defaults(command=_backtranslate)


def _backtranslate(arguments: argparse.Namespace) -> int:
    teacher = _described(arguments)
    if teacher is None and arguments.model.endswith((".yaml", ".yml")):
        return _chain(arguments)
    if arguments.fresh:
        raise InputError("--fresh requires a YAML file of the whole chain")
    if not arguments.texts or not arguments.out:
        raise InputError("give MODEL, at least one TEXT and --out FILE; or a YAML file of the whole chain")
    if not arguments.out.endswith(".jsonl"):
        raise InputError(f"--out must be a file that ends in .jsonl, but is {arguments.out}")
    keep = 1.0 if arguments.keep is None else arguments.keep
    rules = _rules("copy,script" if arguments.filter is None else arguments.filter)
    texts = existing_files(arguments.texts)
    from transformer_mt.companions.lab.synthetic import (
        PairSelection,
        Runs,
        SyntheticCorpusTask,
        TextSource,
        counts_in_words,
        make_corpus,
    )
    from transformer_mt.ranks import Ranks, refuse_lost_rank

    ranks = Ranks()
    if teacher is None:
        request = ModelRequest.of(arguments)
        translator = load_translator(request)
        ranks = join_ranks(translator) if has_ranks() else ranks
        request = replace(request, source_lang=translator.source_lang, target_lang=translator.target_lang)
        teacher = Runs(translator, [run.path for run in (request.run(), *request.other_runs())])
    choice = PairSelection(rules, keep)
    step = SyntheticCorpusTask(teacher, TextSource.of_files(texts), is_source=False, choice=choice)
    try:
        counts = make_corpus(step, Path(arguments.out), ranks)
    except RuntimeError as error:
        refuse_lost_rank(error)
        raise
    if counts:
        say(f"{arguments.out}: {counts_in_words(counts)}")
    ranks.leave()
    return 0


def _described(arguments: argparse.Namespace) -> "Teacher | None":
    """The teacher that a YAML file describes; None if MODEL is another kind of file, or a folder."""
    from transformer_mt.companions.lab.synthetic import is_described, open_teacher

    file = Path(arguments.model)
    if not is_described(file):
        return None
    teacher = open_teacher(file, (vars(arguments)["from"], arguments.to))
    if teacher is not None:
        used = ("model", "texts", "out", "filter", "keep", "fresh", "from", "to", "command")
        _check_others(arguments, used, "a language model")
        if has_ranks():
            raise InputError("a language model must be asked by one process; run this without torchrun")
    return teacher


def _check_others(arguments: argparse.Namespace, used: Sequence[str], what: str) -> None:
    """InputError if options are given that have no effect with this kind of MODEL."""
    others = {key: value for key, value in vars(arguments).items() if key not in used}
    if given := [key for key, value in others.items() if value not in (None, [], "auto")]:
        raise InputError(Setting(given[0]), f" must be left out with {what}")


def _chain(arguments: argparse.Namespace) -> int:
    if arguments.texts:
        raise InputError(
            "with the YAML file of a chain the texts must be named in it, but TEXT is given; the file of a "
            "language model has the key teacher"
        )
    _check_others(arguments, ("model", "out", "fresh", "command"), "a YAML file of the whole chain")
    if has_ranks():
        raise InputError("a chain must run in one process; use torchrun for its steps instead")
    from transformer_mt.companions.lab.backtranslation_chain import run_chain

    folder = Path(arguments.out) if arguments.out else None
    run_chain(Path(arguments.model), folder, arguments.fresh)
    return 0


def _rules(text: str) -> "FilterConfig":
    from transformer_mt.settings.corpus_keys import FilterConfig

    names = [name.strip() for name in text.split(",") if name.strip()]
    if wrong := next((name for name in names if name not in _RULES), None):
        raise InputError(f"--filter must be of {', '.join(_RULES)}, but has {wrong}")
    return FilterConfig.model_validate({name: "drop" if name == "encoding" else True for name in names})


_DISTILL = (
    "Train a small, fast student on a teacher's translations of the training sentences, export it in int8, "
    "and print the quality, size and speed of teacher and student. Rerun it to resume."
)


def add_distill(parser: Parser) -> None:
    parser.description = _DISTILL
    parser.add_argument(
        "teacher", metavar="TEACHER", help="the folder of a trained model, or a language model's YAML file"
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the student")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="settings that override the student's file",
    )
    parser.add_argument("--out", metavar="DIR", help="the student's folder (default: runs/NAME)")
    parser.add_argument(
        "--ensemble", metavar="TEACHER", action="append", default=[],
        help="another teacher that translates together with the first; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--text", metavar="FILE", action="append", default=[],
        help="text in the source language to learn from besides the training corpora; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--references", action="store_true", help="also learn from the training corpora themselves"
    )
    parser.add_argument(
        "--clean", action="store_true",
        help="leave out translations that copy, repeat themselves, were cut, or are much too long or short",
    )  # fmt: skip
    parser.add_argument(
        "--keep", metavar="SHARE", type=share, default=1.0,
        help="learn from this share of the translations, those with the best scores (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--fresh", action="store_true", help="start over; the old student is moved aside, nothing is deleted"
    )
    parser.set_defaults(command=_distill)


def _distill(arguments: argparse.Namespace) -> int:
    from transformer_mt.config.load import load_config

    config = load_config(arguments.config, arguments.overrides)
    texts = existing_files(arguments.text)
    from transformer_mt.companions.lab.distill import DistillationPlan, distill
    from transformer_mt.companions.lab.synthetic import REJECTED_FLAGS, PairSelection, is_described
    from transformer_mt.run_folder import open_model
    from transformer_mt.settings.corpus_keys import FilterConfig

    if has_ranks() and is_described(Path(arguments.teacher)):
        raise InputError("a language model must be asked by one process; run this without torchrun")
    plan = DistillationPlan(
        teachers=[
            Path(model) if is_described(Path(model)) else open_model(model).path
            for model in (arguments.teacher, *arguments.ensemble)
        ],
        texts=texts,
        with_references=arguments.references,
        choice=PairSelection(
            FilterConfig(copy=arguments.clean), arguments.keep, REJECTED_FLAGS if arguments.clean else ()
        ),
    )
    folder = Path(arguments.out) if arguments.out else None
    print(distill(plan, config, folder, arguments.fresh), end="")
    return 0


def add_rerank(parser: Parser) -> None:
    parser.description = "Choose one of the candidates of each line by a metric that a command computes."
    parser.add_argument(
        "candidates", metavar="FILE", nargs="+",
        help="candidates as `translate --json --n-best N` writes them, a file for each system",
    )  # fmt: skip
    parser.add_argument(
        "--external", metavar="NAME=COMMAND", required=True,
        help="the metric, the higher the better: a command that stays, as that of `train --monitor`",
    )  # fmt: skip
    parser.add_argument(
        "--mbr", action="store_true",
        help="the mean score with each other candidate as the reference, not the score without a reference",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON object per line, with the score")
    parser.set_defaults(command=_rerank)


def _rerank(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.lab.reranking import choices, read_candidates
    from transformer_mt.evaluation.external_metric import StayingMetric

    metric = StayingMetric(*named_command("--external", arguments.external))
    for choice in choices(read_candidates(list(map(Path, arguments.candidates))), metric, arguments.mbr):
        print(
            to_json(choice._asdict(), ensure_ascii=False) if arguments.json else choice.translation,
            flush=True,
        )
    metric.close()
    return 0


_SWEEP = (
    "Train variants of one config, each with several seeds, score them, and print one table: parameters, "
    "speed, BLEU with its deviation, significance against the first. The table and a picture of the "
    "learning curves are in the sweep's folder. Rerun it to resume."
)


def add_sweep(parser: Parser) -> None:
    parser.description = _SWEEP
    parser.add_argument("sweep", metavar="SWEEP", help="YAML file that names a base config and its variants")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="overrides for every variant"
    )
    parser.add_argument("--out", metavar="DIR", help="the sweep's folder (default: runs/NAME)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--jobs",
        metavar="N",
        type=positive,
        default=1,
        help="trainings in parallel, sharing the cores (default: 1)",
    )
    where.add_argument(
        "--devices", metavar="LIST", help="devices with one training each, such as cuda:0,cuda:1"
    )
    parser.set_defaults(command=_sweep)


def _seldom(write: Callable[[], object]) -> Callable[[], None]:
    """A function that calls `write`, but skips calls so that writing takes at most a twentieth of the time:
    with many trainings, writing the table takes a minute.
    """
    ended, cost = -math.inf, 0.0

    def call() -> None:
        nonlocal ended, cost
        begun = time.monotonic()
        if begun - ended >= 20 * cost:
            write()
            ended = time.monotonic()
            cost = ended - begun

    return call


def _sweep(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.lab.sweep_jobs import Runner, load_sweep
    from transformer_mt.companions.lab.sweep_table import write_table
    from transformer_mt.device import choose_device

    devices = (
        [name.strip() for name in arguments.devices.split(",")]
        if arguments.devices
        else [None] * arguments.jobs
    )
    if "" in devices:
        raise InputError(f"--devices must be names separated by commas, but is {arguments.devices}")
    for device in filter(None, devices):
        choose_device(device)  # before any training, not in each
    sweep = load_sweep(arguments.sweep, arguments.overrides, arguments.out)
    sweep.folder.mkdir(parents=True, exist_ok=True)

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt(number)

    # The trainings run in their own sessions and do not receive these signals.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        signal_number = getattr(signal, name, None)
        if signal_number and signal.getsignal(signal_number) is not signal.SIG_IGN:  # by nohup
            signal.signal(signal_number, stop)
    table_now = _seldom(lambda: write_table(sweep))
    try:
        failures = Runner(sweep, devices).run(done=table_now)
    except KeyboardInterrupt as stopped:
        say("stopped; run the same command to resume")
        return 128 + stopped.args[0]
    table = write_table(sweep)
    print(table or "", end="")
    if failures:
        raise WorkError(
            f"{len(failures)} of {len(sweep.jobs)} trainings failed; fix them and run the same command again"
        )
    return 0


_TUNE = (
    "Search for better settings of a config by the validation sets: Optuna proposes them, short trainings "
    "sort them out. Ends with a page, and with a config of the best. Rerun it to resume; run it in several "
    "places to search in parallel."
)

USUAL_KEYS = ["train.learning_rate", "train.weight_decay", "train.label_smoothing", "model.dropout"]
"""None of them changes the time of an update."""


def add_tune(parser: Parser) -> None:
    parser.description = _TUNE
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="settings that override the file"
    )
    parser.add_argument(
        "--hours", metavar="N", type=_hours, help="the time from now on, also for the comparison at the end"
    )
    parser.add_argument("--trials", metavar="N", type=positive, help="the most trials of the study")
    parser.add_argument(
        "--keys",
        metavar="KEY",
        nargs="+",
        default=USUAL_KEYS,
        help=f"the keys to search (default: {' '.join(USUAL_KEYS)})",
    )
    parser.add_argument("--out", metavar="DIR", help="the study's folder (default: runs/NAME-tune)")
    parser.set_defaults(command=_tune, is_process=False)


def _hours(text: str) -> float:
    """A number of hours above 0, for argparse."""
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of hours above 0, but is {text}")
    return hours


def _tune(arguments: argparse.Namespace) -> int:
    if arguments.hours is None and arguments.trials is None:
        raise InputError("--hours or --trials must be given, or the search has no end")
    from transformer_mt.config.load import load_config

    config = load_config(arguments.config, arguments.overrides)  # a typo is reported at once
    if arguments.is_process:
        from transformer_mt.cli.train import start_with_tcmalloc

        start_with_tcmalloc()
    from transformer_mt.companions.lab.tune import Tuning, finish

    folder = Path(arguments.out) if arguments.out else Path("runs") / f"{config.name}-tune"
    hours, trials = arguments.hours or math.inf, arguments.trials or math.inf
    search = Tuning(arguments.config, arguments.overrides, arguments.keys, folder, hours, trials)
    try:
        search.run()
        print(finish(search), end="")
    except (Interrupted, KeyboardInterrupt):
        say("the study is kept; run the same command to go on")
        raise
    return 0
