"""What commands share: the parser, the types of arguments, flags of a config's section, and how a mistake is
reported.
"""

import argparse
import json
import math
import os
import re
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel

from transformer_mt.config.load import Loader
from transformer_mt.errors import InputError, Setting, nearest
from transformer_mt.messages import write
from transformer_mt.settings.section import OnlyForSearches, members


def say_error(text: str) -> None:
    """Print a line on stderr, with the rank if there are several processes: any of them may fail."""
    rank = f"rank {os.environ.get('RANK', '?')}: " if int(os.environ.get("WORLD_SIZE", 1)) > 1 else ""
    # A damaged file may be quoted at any length.
    lines = [line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..." for line in text.split("\n")]
    write(rank + "\n".join(lines))


_LONGEST = 1000


class Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, with the nearest right word."""

    def __init__(self, *given: Any, **named: Any) -> None:
        # An abbreviation may stand for another option than was meant: --prot for --protect-usual.
        super().__init__(*given, **{"allow_abbrev": False, **named})
        self.variables: dict[str, str] = {}
        """The variables of the environment that options come from."""
        self.whole: Callable[[], Parser] = lambda: self
        """Gives the parser of all commands, among which an unknown option is looked for."""
        self.words_before: Callable[[Parser], list[str]] = lambda parser: []
        """Words that are put before those of the command line."""
        self.command_line: Sequence[str] = ()
        """The words that are being parsed; an error shows the value of an unknown option."""
        self.hints: dict[str, str] = {}
        """What to do instead of options of other tools."""
        self.shown: dict[str, tuple[str, ...]] = {}
        """The options or commands that --help shows, by heading. If empty, --help shows everything."""

    def show(self, **groups: tuple[str, ...]) -> None:
        """Let --help show these options alone; --help-all shows all."""
        self.shown = groups
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show all options")

    def format_help(self) -> str:
        if not self.shown:
            return super().format_help()
        words = [action for action in self._actions if not action.option_strings]
        named = {name: action for action in self._actions for name in action.option_strings}
        sections = {"arguments": words}
        if below := subcommands(self):
            commands: Any = words[0]
            named, sections = {action.dest: action for action in commands._get_subactions()}, {}
        formatter, usage = self._get_formatter(), " ".join(_word(action) for action in words)
        formatter.add_usage(f"%(prog)s {'' if below else '[OPTION ...] '}{usage}", [], [])
        formatter.add_text(self.description)
        sections |= {title: [named[name] for name in names] for title, names in self.shown.items()}
        for title, actions in sections.items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        return formatter.format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2; argparse itself would print the whole usage."""
        hint = ""
        if choice := re.fullmatch(r"argument (\S+): invalid choice: '?(.+?)'? \(choose from (.+)\)", message):
            name, word, words = choice[1], choice[2], choice[3].replace("'", "")
            right = words.split(", ")
            hint = self.hints.get(word) or _nearest(word, right)
            message = f"{name} must be one of {words}, but is {word}"
            if name == "COMMAND":
                message = f"{word} is no {name.lower()}"
        elif unknown := re.fullmatch(r"unrecognized arguments: (.+)", message):
            unknown_words = unknown[1].split()
            option = next((word.partition("=")[0] for word in unknown_words if word.startswith("-")), None)
            if option is None:
                message = f"{unknown_words[0]} is one argument too many"
            elif hint := self._instead_of(option):
                message = f"{option} is not an option"
            elif commands := _commands_with(option, self.whole()):
                message = f"{option} is not an option of this command, but of {', '.join(commands)}"
            else:
                hint = _nearest(option, _options(self))
                message = f"{option} is not an option"
        elif message.startswith("the following arguments are required: "):
            message = f"{message.partition(': ')[2]} must be given: {self.prog} {self._words()}"
        message = re.sub(r"^argument (-\S+): ", r"\1 ", message)
        if variable := self.variables.get(message.split(" ")[0]):
            message += f" ({variable})"
        say_error(message + (hint or f"; see {self.prog} --help"))
        raise SystemExit(2)

    def _instead_of(self, option: str) -> str:
        """What to type instead of an option of another tool; an empty string if nothing is known."""
        if hint := self.hints.get(option) or self._as_word(option):
            return f"; {hint}"
        if setting := self._as_setting(option):
            return f"; a setting is given as key=value: {setting}"
        others = list(self._option_string_actions)
        slips = [other for other in others if sorted(other) == sorted(option)]  # --prot is --port
        near = slips or [other for other in others if _is_begun(option, other)]
        return f"; did you mean {near[0]}?" if near else ""

    def _as_word(self, option: str) -> str | None:
        """How to give a positional argument that was given as an option: `--config mine.yaml`."""
        for action in self._actions:
            names = {action.dest, str(action.metavar).lower()}
            if not action.option_strings and option.lstrip("-").replace("-", "_") in names:
                return f"{action.metavar} is given without an option: {self.prog} {self._words()}"
        return None

    def _words(self) -> str:
        """The positional arguments, as in the usage."""
        return " ".join(_word(action) for action in self._actions if not action.option_strings)

    def _as_setting(self, option: str) -> str | None:
        """`train.learning_rate=0.1` for `--lr 0.1`; None if the command has no such setting."""
        if not any(action.dest == "overrides" for action in self._actions):
            return None
        from transformer_mt.config.error_sentences import as_override
        from transformer_mt.config.root import Config

        words = [*self.command_line, "..."]
        written = next((word for word in words if word.partition("=")[0] == option), option)
        value = written.partition("=")[2] or (words[words.index(written) + 1] if written in words else "...")
        return as_override(option.lstrip("-").replace("-", "_"), value, Config)


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.shown = {}
        parser.print_help()
        parser.exit()


def _is_begun(option: str, other: str) -> bool:
    """Returns True if one option is a prefix of the other, as `--beam` is of `--beam-size`."""
    return len(other) > _SHORT and (option.startswith(other) or other.startswith(option))


_SHORT = 4  # a prefix of up to this many characters, such as `--to`, is a coincidence


def _word(action: argparse.Action) -> str:
    """A positional argument in the usage."""
    name = str(action.metavar or action.dest)
    nargs = getattr(action, "save_nargs", action.nargs)  # while intermixed arguments are parsed
    return f"[{name} ...]" if nargs == "*" else f"{name} ..." if nargs == "A..." else name


def subcommands(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """The parsers of the commands below, by name."""
    parsers: dict[str, Parser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            parsers |= action.choices
    return parsers


def _options(parser: argparse.ArgumentParser) -> list[str]:
    """Every option of the parser and of its subcommands."""
    below = [option for subparser in subcommands(parser).values() for option in _options(subparser)]
    return [*parser._option_string_actions, *below]


def _commands_with(option: str, parser: argparse.ArgumentParser) -> list[str]:
    """The subcommands that have this option."""
    return [name for name, command in subcommands(parser).items() if option in _options(command)]


def _nearest(word: str, right: list[str]) -> str:
    # Without dashes, which make short words alike; and only what a slip of the fingers explains.
    bare = {name.lstrip("-"): name for name in right}
    near = nearest(word.lstrip("-"), bare, cutoff=0.75)
    return f"; did you mean {bare[near]}?" if near else ""


def share(text: str) -> float:
    """A number above 0 and at most 1, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"must be above 0 and at most 1, but is {text}")
    return number


def existing_files(names: Sequence[str]) -> list[Path]:
    """The names as paths. Raises InputError if a file does not exist."""
    files = [Path(name) for name in names]
    for file in files:
        if not file.is_file():
            raise InputError(f"{file}: no such file")
    return files


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but is {text}")
    return number


def above_zero(text: str) -> float:
    """A number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, but is {text}")
    return number


def add_flags(
    group: argparse._ArgumentGroup, section: type[BaseModel], prefix: str, names: Sequence[str] = ()
) -> None:
    """Add a flag for each key of the section, or only for the keys in `names`. A flag is the key's name with
    dashes, and its help is the key's description.

    The parsed arguments hold a flag's value under the dotted path of its key. Ranges are not checked here:
    pydantic checks the values with the section.
    """
    for name in names or section.model_fields:
        field = section.model_fields[name]
        is_list = typing.get_origin(field.annotation) is list
        meaning = " ".join((field.description or "").split()).replace("%", "%%").rstrip(".")
        group.add_argument(
            flag_of(name),
            dest=f"{prefix}{name}",
            metavar="WORD" if is_list else _metavar(field.annotation),
            action="append" if is_list else "store",
            type=str if is_list else value_of,
            help=meaning + ("; repeatable" if is_list else ""),
        )


def flag_of(name: str) -> str:
    """`--length-penalty` for length_penalty."""
    return f"--{name.replace('_', '-')}"


def given(arguments: argparse.Namespace, prefix: str) -> dict[str, Any]:
    """The keys that were given as flags, without the prefix of their section."""
    values = {key: value for key, value in vars(arguments).items() if value is not None}
    return {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}


def check_searches(section: type[BaseModel], prefix: str, keys: dict[str, Any], search: str) -> None:
    """InputError if one of the given keys has no effect with this search."""
    for key in keys:
        for mark in section.model_fields[key].metadata:
            if isinstance(mark, OnlyForSearches) and search not in mark.searches:
                wanted = Setting(f"{prefix}search", " or ".join(mark.searches))
                raise InputError(
                    Setting(f"{prefix}{key}"), " requires ", wanted, f", but the search is {search}"
                )


def name_by_flags(parser: argparse.ArgumentParser) -> typing.Callable[[Setting], str]:
    """How a command names a setting in an error: by the flag that sets it, if the command has one."""
    flags = {a.dest: max(a.option_strings, key=len) for a in _actions(parser) if a.option_strings}

    def name(setting: Setting) -> str:
        flag = flags.get(setting.key)
        if flag is None:
            return str(setting)
        return flag if setting.value in (None, True) else f"{flag} {setting.value}"

    return name


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The arguments of the parser and of its subcommands."""
    below = [action for subparser in subcommands(parser).values() for action in _actions(subparser)]
    return [*parser._actions, *below]


def value_of(text: str) -> Any:
    """Parse a value as YAML. Invalid YAML stays text, so that the section reports what is wrong with it."""
    try:
        return yaml.load(text, Loader)  # noqa: S506 - Loader is a SafeLoader
    except (yaml.YAMLError, ValueError):
        return text


def _metavar(annotation: Any) -> str:
    """The placeholder for the values of a key: N (integer), X (number), or the choices."""
    words: list[str] = []
    for kind in members(annotation):
        if kind is bool:
            words += ["true", "false"]
        elif typing.get_origin(kind) is Literal:
            words += [json.dumps(word).strip('"') for word in typing.get_args(kind)]
        elif kind is int:
            words.append("N")
        elif kind is float:
            words.append("X")
    return "|".join(words)
