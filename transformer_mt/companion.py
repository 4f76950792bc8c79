"""Companions: packages around the trainer, ours and others', which are attached by an entry point.

A companion declares in its `pyproject.toml`

    [project.entry-points."transformer_mt.companions"]
    NAME = "its_package:companion"

where `companion` is a `Companion` below. What it brings is named as `module:attribute` and imported when it
is used: commands that do not need it start as fast as without. The module of the entry point itself imports
nothing but this file. The core asks the list of companions and names none.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple

from transformer_mt.errors import InputError
from transformer_mt.messages import say

GROUP = "transformer_mt.companions"

Kind = Literal[
    "attention_score", "position", "loss", "change", "stage", "metric", "corpus", "logger",
    "preparation_engine", "export_format",
]  # fmt: skip
"""Kinds of things that the YAML or an option names and a companion may bring."""
Hook = Literal[
    "open_model", "open_teacher", "after_training", "after_evaluation", "document_formats", "open_store",
    "prepared_data",
]  # fmt: skip


class Command(NamedTuple):
    """A command of `transformer-mt`. Its module has `add_arguments(parser)`, which sets the default
    `command`: the function that gets the parsed arguments and returns the exit status.
    """

    module: str
    help: str
    group: str
    """The heading of `transformer-mt --help` that it stands under: start, train, use or research."""


@dataclass(frozen=True, kw_only=True)
class Companion:
    """The things that a package brings to the trainer."""

    requires: Sequence[str] = ()
    """Companions that it imports."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of commands: for each command a function of its parser."""
    public_names: Mapping[str, str] = field(default_factory=dict)
    """Names for `from transformer_mt import NAME`."""
    kinds: Mapping[Kind, Mapping[str, str]] = field(default_factory=dict)
    """Classes by the names that the YAML uses for them."""
    hooks: Mapping[Hook, str] = field(default_factory=dict)
    """Objects that the core calls:

    - open_model(model, languages) -> RunFolder | None: the run of a MODEL or an `init_from` of a kind of its
      own (runs/open_model.py)
    - open_teacher(file, languages) -> Teacher | None: the teacher that a YAML file describes
      (companions/lab/teacher.py)
    - after_training(run, is_asked): after `train`; with `is_asked` a command needs what it makes
    - after_evaluation(arguments, evaluation, tests): after the scores of `evaluate` (cli/evaluate.py)
    - document_formats: files that `translate -i` reads, a DocumentFormats (text/file_formats.py)
    - open_store(url) -> Store: prepared data at a URL (data/preparation/store.py)
    - prepared_data(config, tokenizer, inherited) -> PreparedData | None: data that were prepared in
      another way (data/preparation/prepare.py)
    """


@cache
def companions() -> dict[str, Companion]:
    """The companions by name. Those that cannot be imported, or lack one that they require, are reported."""
    loaded: dict[str, Companion] = {}
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    if not entries and any(Path(__file__).with_name("companions").glob("*/__init__.py")):
        say("note: no companion is registered, so commands are missing; install transformer-mt again")
    for entry in entries:
        try:
            companion = entry.load()
        except Exception as error:  # a deleted folder, or another's broken package: the trainer works without
            say(f"note: the companion {entry.name} is left out: {entry.value} cannot be imported ({error})")
            continue
        if isinstance(companion, Companion):
            loaded[entry.name] = companion
        else:
            say(f"note: the companion {entry.name} is left out: {entry.value} must be a Companion")
    while lacking := [name for name in loaded if not loaded.keys() >= set(loaded[name].requires)]:
        for name in lacking:
            missing = ", ".join(sorted(set(loaded[name].requires) - loaded.keys()))
            say(f"note: the companion {name} is left out: it requires {missing}")
        loaded = {name: companion for name, companion in loaded.items() if name not in lacking}
    return loaded


def hooks(name: Hook) -> Iterator[Any]:
    """The objects that companions bring for a hook."""
    for companion in companions().values():
        if name in companion.hooks:
            yield resolve(companion.hooks[name])


def brought(kind: Kind) -> dict[str, str]:
    """The things of a kind that companions bring: `module:attribute` by name."""
    return {name: value for each in companions().values() for name, value in each.kinds.get(kind, {}).items()}


def load(kind: Kind, name: str) -> Any:
    """A class that a companion brings. InputError for a name that nobody brings."""
    if value := brought(kind).get(name):
        return resolve(value)
    known = list(brought(kind))
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        f"{name}: must be a {kind.replace('_', ' ')} that an installed companion brings ({', '.join(known)})"
        + (f"; did you mean {near[0]}?" if near else "")
    )


def options_for(command: str) -> Iterator[Callable[[Any], None]]:
    """The functions that add companions' options to a command's parser."""
    for companion in companions().values():
        if command in companion.options:
            yield resolve(companion.options[command])


def commands() -> dict[str, Command]:
    """The commands of all companions."""
    return {name: command for each in companions().values() for name, command in each.commands.items()}


def public_names() -> dict[str, str]:
    """The public names of all companions."""
    return {name: value for each in companions().values() for name, value in each.public_names.items()}


def resolve(value: str) -> Any:
    """The object that `module:attribute` names."""
    module, _, attribute = value.partition(":")
    return getattr(import_module(module), attribute)
