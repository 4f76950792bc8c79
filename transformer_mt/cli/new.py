"""transformer-mt new"""

import argparse
import shlex
from pathlib import Path

from transformer_mt.cli.options.arguments import Parser
from transformer_mt.errors import InputError
from transformer_mt.new_config.sizing import PURPOSES

_FORMATS = """\
files: two line-aligned text files, .tsv, .csv, .jsonl, .parquet, .tmx, or .zip in OPUS's Moses format, in any
mixture; each may be compressed (.gz, .bz2, .xz, .zst)."""


def add_arguments(parser: Parser) -> None:
    parser.description = "Inspect files of sentence pairs and write a config sized for them and this machine."
    parser.epilog = _FORMATS
    parser.add_argument("source_lang", metavar="SRC", help="language code of the source: en")
    parser.add_argument("target_lang", metavar="TGT", help="language code of the target: de")
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
    parser.set_defaults(command=_new)


def _new(arguments: argparse.Namespace) -> int:
    from transformer_mt.messages import say
    from transformer_mt.new_config.write import new_config

    out = Path(arguments.out or f"{arguments.source_lang}_{arguments.target_lang}.yaml")
    languages = arguments.source_lang, arguments.target_lang
    if arguments.parent and arguments.purpose:
        raise InputError("--for and --from must not be given together: an adapted model keeps its sizes")
    purpose = arguments.purpose or "ctranslate2"
    new_config(*languages, arguments.files, out, arguments.parent, arguments.glossary, purpose)
    config = shlex.quote(str(out))
    say(f"next: transformer-mt inspect {config}; transformer-mt train {config}")
    return 0
