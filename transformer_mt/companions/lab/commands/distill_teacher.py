"""transformer-mt distill"""

import argparse
from pathlib import Path

from transformer_mt.cli.arguments import Parser, existing_files, share
from transformer_mt.cli.model_options import has_ranks
from transformer_mt.errors import InputError

_ABOUT = (
    "Train a small, fast student on a teacher's translations of the training sentences, export it in int8, "
    "and print the quality, size and speed of teacher and student. Rerun it to resume."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
