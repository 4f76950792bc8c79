"""transformer-mt export"""

import argparse
from pathlib import Path
from typing import Any

from transformer_mt.cli.console import say

_ABOUT = (
    "Write a run's model for another engine, and prove it: both translate a probe set, and an export that "
    "translates differently is not kept. The exported folder is a MODEL for translate, evaluate and score."
)


def add_command(commands: Any) -> None:
    parser = commands.add_parser("export", help="write a model for CTranslate2", description=_ABOUT)
    parser.add_argument("model", metavar="MODEL", help="a run's folder")
    parser.add_argument("out", metavar="OUT", help="the folder to write; must not be there")
    parser.add_argument(
        "--to", choices=["ctranslate2"], default="ctranslate2", help="the engine (default: ctranslate2)"
    )
    parser.add_argument(
        "--quantization",
        choices=["float32", "float16", "bfloat16", "int16", "int8"],
        default="float32",
        help="how weights are stored (default: float32)",
    )
    parser.add_argument(
        "--probe", metavar="FILE", help="sentences both engines translate (default: of the validation set)"
    )
    parser.set_defaults(command=_export)


def _export(arguments: argparse.Namespace) -> int:
    from transformer_mt.export.to_ctranslate2 import export

    proof = export(Path(arguments.model), Path(arguments.out), arguments.quantization, arguments.probe, say)
    print(proof)
    return 0
