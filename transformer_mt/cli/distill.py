"""transformer-mt distill"""

import argparse
from pathlib import Path
from typing import Any

from transformer_mt.cli.console import say

_ABOUT = (
    "Train a small, fast student on a teacher's translations of the training sentences, export it in int8, "
    "and print how good, how large and how fast teacher and student are. Run again, it resumes."
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser(
        "distill", help="train a small, fast student of a trained model", description=_ABOUT
    )
    parser.add_argument("teacher", metavar="TEACHER", help="the run's folder of the trained model")
    parser.add_argument("config", metavar="CONFIG", help="YAML file of the student")
    parser.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        default=[],
        help="settings that win over the student's file",
    )
    parser.add_argument("--out", metavar="DIR", help="the student's folder (default: runs/NAME)")
    parser.set_defaults(command=_distill)


def _distill(arguments: argparse.Namespace) -> int:
    from transformer_mt.config.load import load_config

    config = load_config(arguments.config, arguments.overrides)
    from transformer_mt.experiments.distill import distill
    from transformer_mt.training.loop import Interrupted

    try:
        print(
            distill(Path(arguments.teacher), config, Path(arguments.out) if arguments.out else None, say),
            end="",
        )
    except Interrupted as stop:
        say(str(stop))
        return 128 + stop.signal_number
    return 0
