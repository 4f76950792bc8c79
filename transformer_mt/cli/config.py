"""transformer-mt config show, transformer-mt config schema"""

import argparse

from transformer_mt.cli.arguments import Parser


def add_arguments(parser: Parser) -> None:
    config = parser.add_subparsers(required=True, metavar="show|schema")
    show = config.add_parser("show", help="print the resolved file with each key's meaning")
    show.add_argument("config", metavar="CONFIG", help="YAML file")
    show.add_argument(
        "overrides", metavar="key=value", nargs="*", default=[], help="settings that override the file"
    )
    show.set_defaults(command=_show)
    config.add_parser("schema", help="print the JSON schema editors use").set_defaults(command=_schema)


def _show(arguments: argparse.Namespace) -> int:
    from transformer_mt.config.load import dump_config, load_config

    config = load_config(arguments.config, arguments.overrides)
    if config.init_from:
        from transformer_mt.config.resolve import with_parent
        from transformer_mt.run_folder import parent_of

        config = with_parent(config, parent_of(config).config())
    print(dump_config(config, comments=True), end="")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from transformer_mt.config.load import json_schema

    print(json_schema(), end="")
    return 0
