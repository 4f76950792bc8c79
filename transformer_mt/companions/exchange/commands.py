"""transformer-mt import and export."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser
from transformer_mt.companion import brought
from transformer_mt.companions.exchange.export.format import EXTRAS
from transformer_mt.companions.exchange.export.to_ctranslate2 import QUANTIZATIONS
from transformer_mt.errors import InputError
from transformer_mt.parts import load_part

if TYPE_CHECKING:
    from transformer_mt.companions.exchange.export.format import ExportFormat

_IMPORT = (
    "Convert a public model into a run's folder, which all commands accept: Marian models such as "
    "OPUS-MT, M2M-100 or NLLB, from the Hugging Face hub or a folder in its layout; Marian's own files."
)


def add_import(parser: Parser) -> None:
    parser.description = _IMPORT
    parser.add_argument("model", metavar="MODEL", help="a folder, or a name on the hub")
    parser.add_argument("out", metavar="OUT", help="the run's folder; must not exist")
    parser.add_argument("--revision", metavar="REV", help="a commit, tag or branch on the hub")
    parser.add_argument("--from", dest="from", metavar="LANG", help="its source language, if unknown")
    parser.add_argument("--to", metavar="LANG", help="its target language, or the default of several")
    parser.set_defaults(command=_import)


def _import(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.exchange.importing.foreign_model import Languages, fetched, is_ctranslate2
    from transformer_mt.companions.exchange.importing.import_model import import_model

    folder, revision = fetched(arguments.model, arguments.revision)
    if is_ctranslate2(folder):
        raise InputError(
            f"{folder}: is a CTranslate2 model, which cannot be trained or imported; use it as MODEL"
        )
    languages = Languages(vars(arguments)["from"], arguments.to)
    run = import_model(folder, Path(arguments.out), arguments.model, languages, revision)
    data = run.config().data
    many = f"; {len(data.directions):,} directions in all" if len(data.directions) > 1 else ""
    use = f"translate {shlex.quote(str(run))}"
    print(f"{run}: {data.source_lang} to {data.target_lang}{many}; translate with: {use}")
    return 0


_EXPORT = (
    "Export a run's model for other software, with a model card, and verify it: both translate a probe "
    "set, and an export whose translations differ is not kept. ctranslate2 is a folder and a MODEL for "
    "translate, evaluate and score; huggingface a folder for transformers; argos an .argosmodel file; onnx "
    "two graphs for any runtime; browser a folder with a page."
)


def add_export(parser: Parser) -> None:
    parser.description = _EXPORT
    parser.add_argument("model", metavar="MODEL", help="a run's folder")
    parser.add_argument("out", metavar="OUT", help="output path; must not exist yet")
    parser.add_argument(
        "--to",
        choices=list(brought("export_format")),
        default="ctranslate2",
        help="target software (default: ctranslate2)",
    )
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="how weights are stored (default: float32; int8 for argos, onnx and browser)",
    )
    parser.add_argument("--probe", metavar="FILE", help="probe sentences (default: from the validation set)")
    parser.add_argument("--license", metavar="NAME", help="the model's licence, for its card: cc-by-4.0")
    parser.add_argument(
        "--with",
        dest="extras",
        choices=list(EXTRAS),
        action="append",
        default=[],
        help="give this away, too: " + "; ".join(f"{name}: {what}" for name, what in EXTRAS.items()),
    )
    parser.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.run_folder import open_model

    if arguments.extras and arguments.to != "ctranslate2":
        raise InputError(
            f"--with must be left out with --to {arguments.to}: only our commands read these files"
        )
    target: ExportFormat = load_part("export_format", arguments.to).of(arguments)
    run, out = open_model(arguments.model), Path(arguments.out)
    if arguments.to == "huggingface" and not run.config().data.directions:
        from transformer_mt.companions.exchange.export.text_models import export_text_model

        print(export_text_model(run, out, arguments.probe, arguments.license))
        return 0
    print(export(run, out, target, arguments.probe, arguments.license, arguments.extras))
    return 0
