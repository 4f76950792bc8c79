"""transformer-mt prepare"""

import argparse

from transformer_mt.cli.arguments import Parser


def add_arguments(parser: Parser) -> None:
    about = (
        "Prepare the data of a config, as `train` does before its first update: clean them, learn the "
        "vocabulary and encode them. After an interruption the same command resumes. Several machines with "
        "the same data.preparation.folder share the work."
    )
    parser.description = about
    parser.add_argument("config", metavar="CONFIG", help="YAML file")
    parser.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="settings that override the file"
    )
    parser.set_defaults(command=_prepare)


def _prepare(arguments: argparse.Namespace) -> int:
    from transformer_mt.config.load import load_config
    from transformer_mt.training import prepared

    _, data = prepared(load_config(arguments.config, arguments.overrides))
    print(data.location)
    return 0
