"""transformer-mt backtranslate"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser, existing_files, share
from transformer_mt.cli.model_options import (
    ModelRequest,
    add_model,
    add_search,
    has_ranks,
    join_ranks,
    load_translator,
)
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.companions.lab.synthetic import Teacher
    from transformer_mt.settings.corpus_keys import FilterConfig

_ABOUT = (
    "Make a training corpus from monolingual text: a target-to-source model, or a language model that a YAML "
    "file describes, writes the sources. With the YAML file of a chain instead of MODEL and TEXT: train that "
    "model, translate, and train the forward model. Rerun it to resume."
)
_RULES = ("copy", "script", "language", "numbers", "markup", "encoding")


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
