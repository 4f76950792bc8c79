"""transformer-mt import"""

import argparse
import shlex
from pathlib import Path

from transformer_mt.cli.arguments import Parser
from transformer_mt.errors import InputError

_ABOUT = (
    "Convert a public model into a run's folder, which all commands accept: Marian models such as "
    "OPUS-MT, M2M-100 or NLLB, from the Hugging Face hub or a folder in its layout; Marian's own files."
)


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
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
            f"{folder}: must have weights to import, but CTranslate2's cannot be trained; use it as MODEL"
        )
    languages = Languages(vars(arguments)["from"], arguments.to)
    run = import_model(folder, Path(arguments.out), arguments.model, languages, revision)
    data = run.config().data
    many = f"; {len(data.directions):,} directions in all" if len(data.directions) > 1 else ""
    use = f"translate {shlex.quote(str(run))}"
    print(f"{run}: {data.source_lang} to {data.target_lang}{many}; translate with: {use}")
    return 0
