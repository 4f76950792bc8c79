"""Flags made from the keys of a config section, and the names of flags in errors."""

import argparse
import json
import typing
from collections.abc import Sequence
from typing import Any, Literal

import yaml
from pydantic import BaseModel

from transformer_mt.cli.options.arguments import subcommands
from transformer_mt.config.yaml_loader import Loader
from transformer_mt.errors import InputError, Setting
from transformer_mt.settings.section import OnlyForSearches, members


def add_flags(
    group: argparse._ArgumentGroup, section: type[BaseModel], prefix: str, names: Sequence[str] = ()
) -> None:
    """A flag for each key of the section, or for those named: its name with dashes, and its first sentence as
    the help.

    A flag's value stands in the parsed arguments under the dotted path of its key. The ranges of the values
    are the section's: pydantic checks them.
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
    """A value as the YAML reads it. What is not YAML stays text: the section refuses it with its reason."""
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
