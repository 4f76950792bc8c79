"""The commands `transformer-mt config`, `parts` and `completion`."""

import argparse
import inspect
import textwrap
from typing import ClassVar

from pydantic_core import PydanticUndefined

from transformer_mt.cli.arguments import Parser
from transformer_mt.companion import Kind, companions, resolve
from transformer_mt.errors import InputError, UserError
from transformer_mt.messages import table
from transformer_mt.parts import KINDS, every_name, load_part, origin_of


def add_config(parser: Parser) -> None:
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


FACTS = ("settings", "goes with", "from")


def add_parts(parser: Parser) -> None:
    parser.description = "List the kinds of parts that a config can name, or the parts of a kind."
    parser.add_argument("kind", metavar="KIND", nargs="?", choices=list(KINDS), help=", ".join(KINDS))
    parser.set_defaults(command=_parts)


def _parts(arguments: argparse.Namespace) -> int:
    if arguments.kind is None:
        rows = [(kind, facts.key, ", ".join(every_name(kind))) for kind, facts in KINDS.items()]
        print(table(rows, ["kind", "named by", "parts"]))
        return 0
    for name, meaning, *facts in members(arguments.kind):
        print(name)
        titled = [f"{title}: {fact}" for title, fact in zip(FACTS, facts, strict=True) if fact]
        for text in filter(None, [meaning, *titled]):
            print(textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="      "))
    return 0


def members(kind: Kind) -> list[tuple[str, str, str, str, str]]:
    """(name, meaning, settings, what it goes with, where it comes from) of each part of a kind."""
    rows = []
    for name in every_name(kind):
        owner = next((one for one, each in companions().items() if name in each.kinds.get(kind, {})), "")
        origin = f"companion {owner}" if owner and not origin_of(kind, name) else origin_of(kind, name)
        try:
            part = load_part(kind, name)
        except UserError as error:  # a package that is broken, or lacks an extra
            rows.append((name, f"cannot be loaded: {error}", "", "", origin))
            continue
        meaning = (inspect.getdoc(part) or "").split("\n\n")[0]
        settings = []
        for key, field in part.Settings.model_fields.items() if hasattr(part, "Settings") else ():
            default = "" if field.default is PydanticUndefined else f" ({field.default})"
            settings.append(f"{key}{default}: {' '.join((field.description or '').split()).rstrip('.')}")
        facts = {fact: getattr(part, fact, None) for fact in class_attributes(kind)}
        goes_with = [fact if value is True else f"{fact} {value}" for fact, value in facts.items() if value]
        rows.append((name, " ".join(meaning.split()), "; ".join(settings), ", ".join(goes_with), origin))
    return rows


def class_attributes(kind: Kind) -> list[str]:
    """The class attributes of the kind's base, which say what a part goes with."""
    if not KINDS[kind].base.startswith("transformer_mt"):
        return []
    own = inspect.get_annotations(resolve(KINDS[kind].base))
    flags = (ClassVar[bool], ClassVar[str])
    return [name for name, annotation in own.items() if annotation in flags and name.islower()]


_ABOUT = """\
Print a shell completion script for the shell's start-up file:

  bash   eval "$(transformer-mt completion bash)"
  zsh    eval "$(transformer-mt completion zsh)"
  fish   transformer-mt completion fish | source"""


def add_completion(parser: Parser) -> None:
    parser.description = _ABOUT
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", metavar="SHELL", choices=["bash", "zsh", "fish"], help="bash, zsh or fish")
    parser.set_defaults(command=_completion)


def _completion(arguments: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError:
        raise InputError("this needs shtab: pip install 'transformer-mt[completion]'") from None
    from transformer_mt.cli.parsers import build_parser, build_translate_parser

    for parser in (build_parser(), build_translate_parser()):
        print(shtab.complete(parser, arguments.shell))
    return 0
