"""transformer-mt import, export and verify."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.cli.arguments import Parser
from transformer_mt.companion import brought
from transformer_mt.companions.exchange.export.format import EXTRAS
from transformer_mt.companions.exchange.export.to_ctranslate2 import QUANTIZATIONS
from transformer_mt.errors import InputError
from transformer_mt.files import to_json
from transformer_mt.messages import table
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
    parser.add_argument("--sign", metavar="KEY", help="sign the export with this private key, a PEM file")
    parser.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.exchange.export.export import export
    from transformer_mt.companions.exchange.verify import signer_of
    from transformer_mt.run_folder import open_model

    if arguments.extras and arguments.to != "ctranslate2":
        raise InputError(
            f"--with must be left out with --to {arguments.to}: only our commands read these files"
        )
    if getattr(arguments, "shortlist", False) and arguments.to not in ("bergamot", "browser"):
        raise InputError(
            f"--shortlist must be left out with --to {arguments.to}: only Bergamot's engine knows one"
        )
    run, out = open_model(arguments.model), Path(arguments.out)
    run.config()  # before anything is looked for: it says which runs there are
    sign = signer_of(arguments.sign) if arguments.sign else None
    target: ExportFormat = load_part("export_format", arguments.to).of(arguments)
    if arguments.to == "huggingface" and not run.config().data.directions:
        from transformer_mt.companions.exchange.export.text_models import export_text_model

        print(export_text_model(run, out, arguments.probe, arguments.license))
    else:
        print(export(run, out, target, arguments.probe, arguments.license, arguments.extras))
    if sign:
        sign(out)
    return 0


_VERIFY = (
    "Check that an export or a run is as it was written: the hash of every file, what its proof says, and, "
    "with --key or --identity, who signed it. The exit status is 1 if something is wrong."
)


def add_verify(parser: Parser) -> None:
    parser.description = _VERIFY
    parser.add_argument("folder", metavar="FOLDER", help="an export (also an .argosmodel file) or a run")
    parser.add_argument("--key", metavar="FILE", help="the signer's public key, a PEM file")
    parser.add_argument(
        "--identity", metavar="NAME", help="the signer's e-mail address or workflow (Sigstore)"
    )
    parser.add_argument("--issuer", metavar="URL", help="who vouches for that identity, an OpenID provider")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.set_defaults(command=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    from transformer_mt.companions.exchange.verify import verify

    if bool(arguments.identity) != bool(arguments.issuer):
        raise InputError("--identity and --issuer must be given together: one vouches for the other")
    rows = verify(Path(arguments.folder), arguments.key, arguments.identity, arguments.issuer)
    if arguments.json:
        print(to_json([row._asdict() for row in rows], indent=1, ensure_ascii=False))
    else:
        print(
            table(
                [(row.check, row.found, "WRONG" if row.is_wrong else "") for row in rows], ("", "found", "")
            )
        )
    return int(any(row.is_wrong for row in rows))
