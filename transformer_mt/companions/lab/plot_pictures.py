"""transformer-mt plot attention, plot curves and plot schedule"""

import argparse
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import ModelRequest, add_model, load_translator
from transformer_mt.errors import InputError
from transformer_mt.files import to_json
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.companions.lab.inside import AttentionMaps


def add_arguments(parser: Parser) -> None:
    kinds = parser.add_subparsers(required=True, metavar="attention|curves|schedule")
    about = "Draw the attention weights of a sentence: keys on top, queries at the side."
    attention = kinds.add_parser("attention", help="heat maps of attention weights", description=about)
    add_model(attention)
    attention.add_argument("source", metavar="SOURCE", help="a sentence, or a text for BERT or GPT")
    attention.add_argument("--target", metavar="TEXT", help="a translation of it (default: the model's own)")
    attention.add_argument(
        "--kind",
        choices=["cross", "encoder", "decoder"],
        help="attention to draw (default: cross, or the only one of an encoder or decoder)",
    )
    attention.add_argument(
        "--layer", metavar="N|all|mean", default="mean", help="which layers (default: their mean)"
    )
    attention.add_argument(
        "--head", metavar="N|all|mean", default="mean", help="which heads (default: their mean)"
    )
    attention.add_argument("-o", "--output", metavar="FILE", help="the picture: .png, .svg or .pdf")
    attention.add_argument("--json", action="store_true", help="print the numbers")
    attention.set_defaults(command=_attention)
    about = "Draw validation loss, score and learning rate of several runs in one picture."
    curves = kinds.add_parser("curves", help="learning curves", description=about)
    curves.add_argument("runs", metavar="RUN", nargs="+", help="a run's folder")
    units = ["updates", "tokens", "minutes", "hours"]
    curves.add_argument(
        "--against", choices=units, default="updates", help="unit of the x-axis (default: updates)"
    )
    curves.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the picture: .png, .svg or .pdf"
    )
    curves.set_defaults(command=_curves)
    about = "Draw the learning rate of each update of a training, before it begins."
    schedule = kinds.add_parser("schedule", help="learning rates of configs", description=about)
    schedule.add_argument(
        "configs", metavar="CONFIG", nargs="+", help="YAML file; key=value after it changes it"
    )
    schedule.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the picture: .png, .svg or .pdf"
    )
    schedule.set_defaults(command=_schedule)


def _attention(arguments: argparse.Namespace) -> int:
    if not arguments.output and not arguments.json:
        raise InputError("--output FILE must be given for a picture, or --json for the numbers")
    if arguments.engine == "ctranslate2":
        raise InputError("attention can only be plotted with --engine torch, but the engine is ctranslate2")
    output = _picture(arguments.output) if arguments.output else None
    from transformer_mt.run_folder import RunFolder

    run, kind = RunFolder(arguments.model), arguments.kind or "cross"
    if run.config_file.exists() and (alone := run.config().model.kind) in ("encoder", "decoder"):
        from transformer_mt.companions.lab.inside import look_at_text
        from transformer_mt.companions.language_models.text_models import TextModel

        if arguments.target or arguments.kind not in (None, alone):
            raise InputError(f"--target and --kind must be left out with a model.kind: {alone}")
        kind = alone
        seen = look_at_text(TextModel.load(run.path, (alone,), arguments.device), arguments.source)
    else:
        seen = _look(arguments)
    from transformer_mt.companions.lab.inside import maps

    chosen = maps(seen, kind, arguments.layer, arguments.head)
    rows, columns = seen.rows(kind), seen.columns(kind)
    if arguments.json:
        numbers = [{"title": title, "weights": weights.tolist()} for title, weights in chosen]
        print(to_json({"rows": rows, "columns": columns, "maps": numbers}, ensure_ascii=False))
    if output:
        from transformer_mt.companions.lab.pictures import heat_maps

        if problem := heat_maps(chosen, rows, columns, output, seen.title(kind)):
            say(problem)
    return 0


def _look(arguments: argparse.Namespace) -> "AttentionMaps":
    """The attentions of a translation."""
    request = ModelRequest.of(arguments)
    if not request.run().is_export:
        request = replace(request, engine=replace(request.engine, engine="torch"))  # not the run's own export
    translator = load_translator(request)
    from transformer_mt.companions.lab.inside import look

    return look(translator, arguments.source, arguments.target)


def _curves(arguments: argparse.Namespace) -> int:
    output = _picture(arguments.output)
    from transformer_mt.companions.lab.pictures import curves
    from transformer_mt.run_folder import RunFolder

    runs = list(map(RunFolder, arguments.runs))
    for run in runs:
        if not run.metrics_file.exists():
            raise InputError(f"{run}: must be a run's folder, but holds no {run.metrics_file.name}")
    names = _names([run.path for run in runs])
    curves(list(zip(names, [run.entries() for run in runs])), arguments.against, output)
    return 0


def _schedule(arguments: argparse.Namespace) -> int:
    output = _picture(arguments.output)
    from transformer_mt.companions.lab.pictures import schedules
    from transformer_mt.config.load import load_config

    configs, words = [], list(arguments.configs)
    while words:
        file = words.pop(0)
        overrides = list(takewhile(lambda word: "=" in word, words))
        del words[: len(overrides)]
        configs.append((" ".join([Path(file).stem, *overrides]), load_config(file, overrides).train))
    schedules(configs, output)
    return 0


def _names(folders: list[Path]) -> list[str]:
    """The last part of each path, or as many parts as needed to make the names differ: in a sweep, many
    paths end in seed-1.
    """
    paths = [folder.resolve() for folder in folders]
    for parts in range(1, max(len(path.parts) for path in paths)):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(set(paths)):
            break
    return names


def _picture(name: str) -> Path:
    """The file to draw into; InputError, before any work, if it cannot be one."""
    path = Path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InputError(f"{path}: a picture must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder to write the picture into")
    return path
