"""A command's options as variables of the environment, for containers: TRANSFORMER_MT_PORT is --port."""

import argparse
import difflib
import shlex
from collections.abc import Iterator, Mapping

from transformer_mt.cli.arguments import Parser
from transformer_mt.messages import say

_PREFIX = "TRANSFORMER_MT_"
_OTHERS = ("CACHE", "OPUS")
"""Variables that are no option."""
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def words_of_environment(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> list[str]:
    """The words that the variables stand for, to be put before those of the command line, which win. What may
    be given several times is divided as a shell does.
    """
    actions = {_variable(action): action for action in parser._actions if action.dest != "help"}
    words: list[str] = []
    for name, value in environment.items():
        # Kubernetes sets these for a service that is called transformer-mt
        is_of_kubernetes = "_SERVICE_" in name or "_PORT_" in name or value.startswith("tcp://")
        if not name.startswith(_PREFIX) or name[len(_PREFIX) :] in _OTHERS or is_of_kubernetes or not value:
            continue
        if action := actions.get(name):
            try:
                words += _words(action, value)
            except ValueError as error:
                parser.error(f"{name} must be {error}, but is {value}")
            if action.option_strings and isinstance(parser, Parser):
                parser.variables[action.option_strings[-1]] = name
        else:
            near = difflib.get_close_matches(name, actions, n=1)
            say(f"note: {name} is unknown{f'; did you mean {near[0]}?' if near else ''}")
    return words


def _variable(action: argparse.Action) -> str:
    name = action.option_strings[-1].lstrip("-") if action.option_strings else action.dest
    return _PREFIX + name.replace("-", "_").upper()


def _words(action: argparse.Action, value: str) -> Iterator[str]:
    option = action.option_strings[-1] if action.option_strings else None
    if action.nargs == 0:
        if value.lower() not in (*_TRUE, *_FALSE):
            raise ValueError("true or false")
        if value.lower() in _TRUE and option:
            yield option
        return
    is_list = option is None or isinstance(action, argparse._AppendAction)
    try:
        values = shlex.split(value) if is_list else [value]
    except ValueError:
        raise ValueError("words with closed quotations") from None
    for item in values:
        yield f"{option}={item}" if option else item
