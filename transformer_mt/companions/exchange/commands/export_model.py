"""transformer-mt export"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.options.arguments import Parser
from transformer_mt.companions.exchange.export.ctranslate2_support import QUANTIZATIONS
from transformer_mt.errors import InputError, Setting

if TYPE_CHECKING:
    from transformer_mt.companions.exchange.export.format import ExportFormat

_ABOUT = (
    "Export a run's model for other software, with a model card, and verify it: both translate a probe "
    "set, and an export whose translations differ is not kept. ctranslate2 is a folder and a MODEL for "
    "translate, evaluate and score; huggingface a folder for transformers; argos an .argosmodel file."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.add_argument("model", metavar="MODEL", help="a run's folder")
    parser.add_argument("out", metavar="OUT", help="output path; must not exist yet")
    parser.add_argument(
        "--to",
        choices=["ctranslate2", "huggingface", "argos"],
        default="ctranslate2",
        help="target software (default: ctranslate2)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="how weights are stored (default: float32; with --to argos int8)",
    )
    parser.add_argument("--probe", metavar="FILE", help="probe sentences (default: from the validation set)")
    parser.add_argument("--license", metavar="NAME", help="the model's licence, for its card: cc-by-4.0")
    parser.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.runs.open_model import open_model

    target = _target(arguments.to, arguments.quantization)
    run, out = open_model(arguments.model), Path(arguments.out)
    if arguments.to == "huggingface" and not run.config().data.directions:
        from transformer_mt.companions.exchange.export.text_models import export_text_model

        print(export_text_model(run, out, arguments.probe, arguments.license))
        return 0
    print(export(run, out, target, arguments.probe, arguments.license))
    return 0


def _target(name: str, quantization: str | None) -> "ExportFormat":
    if name == "argos":
        from transformer_mt.companions.exchange.export.to_argos import ToArgos

        return ToArgos(quantization or "int8")
    if name == "huggingface":
        from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace

        if quantization not in (None, "float32"):
            raise InputError(
                Setting("quantization"), " must be float32 with ", Setting("to", "huggingface"),
                f", but is {quantization}",
            )  # fmt: skip
        return ToHuggingFace()
    from transformer_mt.companions.exchange.export.to_ctranslate2 import ToCTranslate2

    return ToCTranslate2(quantization or "float32")
