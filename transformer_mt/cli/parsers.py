"""The parsers of `transformer-mt` and `translate`, with the commands of the core and of companions."""

import contextlib

from transformer_mt import companion
from transformer_mt.cli.arguments import Parser
from transformer_mt.companion import Command
from transformer_mt.errors import WorkError
from transformer_mt.messages import say_once
from transformer_mt.version import __version__

COMMANDS = {
    name: Command(f"transformer_mt.cli.{place}", meaning, group)
    for name, place, meaning, group in (
        ("config", "listings:add_config", "look at a config", "start"),
        ("train", "train", "train a model, or resume its training", "train"),
        ("translate", "translate", "translate text", "use"),
        ("evaluate", "evaluate", "score a model on test sets", "use"),
        ("score", "evaluate:add_score", "log-probabilities of given translations", "use"),
        ("completion", "listings:add_completion", "print a shell's completion", "use"),
        ("parts", "listings:add_parts", "list what a config can name", "research"),
    )
}
"""The commands of the core."""


def build_parser(only: str | None = None) -> Parser:
    """The parser of `transformer-mt`. If `only` names a command, the others have no arguments, because
    importing them takes time.
    """
    brought = companion.commands()
    for name in brought.keys() & COMMANDS.keys():
        say_once(
            f"note: a companion's command {name} is left out, because the trainer has a command of this name"
        )
    commands = COMMANDS | {name: brought[name] for name in brought if name not in COMMANDS}
    parser = Parser(prog="transformer-mt", description="Train Transformers and translate with them.")
    parser.add_argument("--version", action="version", version=f"transformer-mt {__version__}")
    below = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    parser.hints = {"demo": "; `make demo` or `transformer-mt train demo` trains the demo"}
    parser.shown = dict.fromkeys(("start", "train", "use", "research"), ())
    for name, command in commands.items():
        parser.shown[command.group] = (*parser.shown.get(command.group, ()), name)
        added = below.add_parser(name, help=command.help.replace("%", "%%"))
        if name == only:
            _fill(added, name, command)
        elif only is None:
            with contextlib.suppress(WorkError):  # a broken command is reported when it is used
                _fill(added, name, command)
    return parser


def build_translate_parser() -> Parser:
    """The parser of `translate`."""
    parser = Parser(prog="translate")
    _fill(parser, "translate", COMMANDS["translate"])
    return parser


def _fill(parser: Parser, name: str, command: Command) -> None:
    """Add the arguments of a command. WorkError if it is a companion's, and broken."""
    add_arguments = companion.arguments_of(command)
    try:
        add_arguments(parser)
    except Exception as error:
        if name in COMMANDS or (sentence := companion.blamed(error)) is None:
            raise
        raise WorkError(sentence) from error
    companion.add_options(name, parser)
