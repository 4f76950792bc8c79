"""transformer-mt tune"""

import argparse
import math
from pathlib import Path

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.errors import InputError, Interrupted
from transformer_mt.messages import say

_ABOUT = (
    "Search for better settings of a config by the validation sets: Optuna proposes them, short trainings "
    "sort them out. Ends with a page, and with a config of the best. Rerun it to resume; run it in several "
    "places to search in parallel."
)

USUAL_KEYS = ["train.learning_rate", "train.weight_decay", "train.label_smoothing", "model.dropout"]
"""None of them changes the time of an update."""


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
