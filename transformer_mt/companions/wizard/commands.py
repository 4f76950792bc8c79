"""`transformer-mt new`, and the table of `transformer-mt train --plan`."""

import argparse
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tabulate import tabulate

from transformer_mt.cli.arguments import Parser, above_zero
from transformer_mt.companions.wizard.plan import PURPOSES
from transformer_mt.config.load import load_config
from transformer_mt.errors import InputError
from transformer_mt.messages import duration, say
from transformer_mt.processes import OtherPrograms

if TYPE_CHECKING:
    from transformer_mt.companions.wizard.plan import TrainingPlan

_HOUR = 3600
_FORMATS = """\
files: two line-aligned text files, .tsv, .csv, .jsonl, .parquet, .tmx, or .zip in OPUS's Moses format, in any
mixture; each may be compressed (.gz, .bz2, .xz, .zst)."""


def add_arguments(parser: Parser) -> None:
    parser.description = "Inspect files of sentence pairs and write a config sized for them and this machine."
    parser.epilog = _FORMATS
    for side, word, example in (("source", "SRC", "en"), ("target", "TGT", "de")):
        about = f"language code of the {side}: {example}"
        parser.add_argument(f"{side}_lang", metavar=word, type=_language, help=about)
    parser.add_argument("files", metavar="FILE", nargs="+", help="files of sentence pairs")
    parser.add_argument("--out", metavar="YAML", help="the config to write (default: SRC_TGT.yaml)")
    parser.add_argument(
        "--from", dest="parent", metavar="MODEL",
        help="adapt this model: a run's folder, a public model's, or a name on the hub",
    )  # fmt: skip
    parser.add_argument(
        "--glossary", metavar="FILE", help="train for glossaries such as this one: TSV, CSV or TBX"
    )
    parser.add_argument(
        "--for", dest="purpose", metavar="EXPORT", choices=PURPOSES,
        help=f"the export that a new model must fit: {', '.join(PURPOSES)} (default: ctranslate2)",
    )  # fmt: skip
    parser.add_argument(
        "--hours", metavar="H", type=above_zero, help="a training of at most about H hours on this machine"
    )
    parser.set_defaults(command=_new)


def _language(code: str) -> str:
    """A language's code, for argparse, which would otherwise miss the files first."""
    from transformer_mt.settings.corpus_keys import check_language

    try:
        check_language(code)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return code


def _new(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.wizard.write import new_config

    out = Path(arguments.out or f"{arguments.source_lang}_{arguments.target_lang}.yaml")
    languages = arguments.source_lang, arguments.target_lang
    if arguments.parent and arguments.purpose:
        raise InputError("--for and --from must not be given together: an adapted model keeps its sizes")
    if arguments.parent and arguments.hours:
        raise InputError("--hours and --from must not be given together; lower train.max_updates instead")
    purpose = arguments.purpose or "ctranslate2"
    given = (arguments.parent, arguments.glossary, purpose, arguments.hours)
    seconds = new_config(*languages, arguments.files, out, *given)
    config = shlex.quote(str(out))
    if seconds > _HOUR and not (arguments.hours or arguments.parent):
        say(f"for a training of one hour: remove {config}, and add --hours 1 to this command")
    say(f"next: transformer-mt inspect {config}; transformer-mt train {config}")
    return 0


def add_plan(parser: Parser) -> None:
    parser.add_argument(
        "--plan", dest="command", action="store_const", const=_plan, default=argparse.SUPPRESS,
        help="do not train: measure time and memory on this machine, and advise",
    )  # fmt: skip
    parser.add_argument("--price", metavar="X", type=above_zero, help="with --plan: what an hour costs")


def _cost(plan: "TrainingPlan", price: float) -> list[tuple[str, str]]:
    """The row of what the training costs, if its time was measured."""
    if plan.seconds is None:
        return []
    hours = plan.seconds * plan.updates / 3600
    return [("cost", f"{hours * price:,.2f} at {price:g} an hour; without validations")]


def _plan(arguments: argparse.Namespace) -> int:
    """Print how long the training takes here and in how much memory."""
    config = load_config(arguments.config, arguments.overrides)
    if arguments.gpus > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise InputError("--plan must run in one process; leave out --gpus and torchrun")
    say(f"{config.name}: loading PyTorch")  # takes seconds
    from transformer_mt.companions.wizard.plan import lengths_of, plan_training

    config, lengths = lengths_of(config)
    say("measuring this machine")
    others = OtherPrograms()
    plan = plan_training(config, lengths)
    rows = _rows(plan, others)
    if arguments.price is not None:
        rows += _cost(plan, arguments.price)
    print(tabulate(rows, tablefmt="plain"))
    for change in plan.changes:
        print(f"\n{change.keys}\n  {change.reason}")
    return 0


def _rows(plan: "TrainingPlan", others: OtherPrograms) -> list[tuple[str, str]]:
    parts = ", ".join(f"{part} {count:,}" for part, count in plan.parameters.items())
    of_state, time = plan.state_bytes / 1e9, "not measured: the model does not fit this machine"
    if plan.seconds is not None:
        total = duration(plan.seconds * plan.updates)
        how = "measured without torch.compile" if plan.is_compiled else "measured"
        time = f"{total}, {plan.seconds:.3g} s an update, {how}; without validations"
        time += others.note(plan.seconds * plan.updates)
    return [
        ("parameters", f"{sum(plan.parameters.values()):,}: {parts}"),
        ("epoch", f"{plan.pairs:,.0f} pairs"),
        (
            "update",
            f"{plan.update_tokens:,} padded tokens, of them {plan.target_tokens:,.0f} target tokens; "
            f"{'packed' if plan.packed else 'padded'}, {plan.padding:.0%} padding",
        ),
        (
            "training",
            f"{plan.updates:,} updates, {plan.epochs:.1f} epochs, "
            f"{plan.updates * plan.target_tokens:,.0f} target tokens",
        ),
        (
            "memory",
            f"{plan.peak_bytes / 1e9:.1f} of {plan.available_bytes / 1e9:.1f} GB, including {of_state:.1f} "
            "GB for weights, gradients and moments",
        ),
        ("time", time),
    ]
