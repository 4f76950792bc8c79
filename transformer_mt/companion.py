"""Companions: packages, ours or third-party, that extend the trainer through an entry point.

A companion declares in its `pyproject.toml`

    [project.entry-points."transformer_mt.companions"]
    NAME = "its_package:companion"

where `companion` is an instance of `Companion` below. It names what it brings as `module:attribute`, which is
imported on first use, so that commands that do not need it start as fast as without the companion. The module
of the entry point imports only this file. The core goes through the list of companions instead of naming
them.

A fault in a third-party package is reported in one line that names the package, and everything that does not
need the package keeps working: a malformed companion is left out, a hook that fails is skipped, and an error
in a part that is needed ends the command with a sentence (`blamed`).
"""

import contextlib
import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from transformer_mt.errors import InputError, Interrupted, UserError, WorkError
from transformer_mt.messages import say

GROUP = "transformer_mt.companions"

Kind = Literal[
    "attention_score", "position", "norm", "feed_forward", "residual", "loss", "optimizer", "schedule",
    "objective", "change", "corpus", "stage", "resource", "engine", "selection", "rule", "metric",
    "logger", "preparation_engine", "export_format", "document_format",
]  # fmt: skip
"""Kinds of things that the YAML or an option names and a companion may bring."""
Hook = Literal[
    "open_model", "open_teacher", "after_training", "after_evaluation", "evaluate_text",
    "open_store", "prepared_data", "translation_sink",
]  # fmt: skip
Group = Literal["start", "train", "use", "research"]
"""The headings of `transformer-mt --help`."""


class Command(NamedTuple):
    """A command of `transformer-mt`."""

    module: str
    """`module` or `module:function`. The function (by default `add_arguments`) takes the parser, adds the
    arguments and sets the default `command`: a function that takes the parsed arguments and returns the exit
    status.
    """
    help: str
    group: str
    """The heading of `transformer-mt --help` that it stands under."""


@dataclass(frozen=True, kw_only=True)
class Companion:
    """The things that a package brings to the trainer."""

    requires: Sequence[str] = ()
    """Companions that it imports."""
    commands: Mapping[str, Command] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of commands: for each command, the function that adds them to its parser."""
    public_names: Mapping[str, str] = field(default_factory=dict)
    """Names for `from transformer_mt import NAME`."""
    kinds: Mapping[Kind, Mapping[str, str]] = field(default_factory=dict)
    """Classes by the names that the YAML uses for them."""
    hooks: Mapping[Hook, str] = field(default_factory=dict)
    """Objects that the core calls:

    - open_model(model, languages) -> RunFolder | None: the run for a MODEL or an `init_from` that is not a
      run's folder (run_folder.py)
    - open_teacher(file, languages) -> Teacher | None: the teacher that a YAML file describes
      (companions/lab/distill.py)
    - after_training(run, is_asked): called after `train`; `is_asked` if a command needs the hook's result
    - after_evaluation(arguments, evaluation, tests): after the scores of `evaluate` (cli/evaluate.py)
    - evaluate_text(arguments, run, config): `evaluate` of a model that translates nothing (cli/evaluate.py)
    - translation_sink(request) -> TranslationSink | None: what `translate` also writes its lines to
      (cli/translate.py)
    - open_store(url) -> Store: prepared data at a URL (data/preparation/store.py)
    - prepared_data(config, tokenizer, inherited) -> PreparedData | None: data that were prepared in
      another way (preparation.py)
    """


@cache
def companions() -> dict[str, Companion]:
    """The companions by name. A companion is left out, and reported in a line, if it cannot be imported, is
    malformed, brings something that another one brings, or requires a companion that is missing.
    """
    loaded: dict[str, Companion] = {}
    entries = sorted(entry_points(group=GROUP), key=lambda entry: (not _is_ours(entry.value), entry.name))
    if not entries and any(Path(__file__).with_name("companions").glob("*/__init__.py")):
        say("note: no companion is registered, so commands are missing; install transformer-mt again")
    taken: dict[tuple[str, str], str] = {}
    for entry in entries:
        try:
            with _quietly():
                companion = entry.load()
            fault = _fault(companion)
        except (Exception, SystemExit) as error:  # a deleted folder, or a broken package
            _leave_out(entry.name, f"{entry.value} cannot be imported ({_in_words(error)})")
            continue
        names = [] if fault else list(_names(companion))
        double = next((name for name in names if name in taken), None)
        if entry.name in loaded:
            fault = "two installed packages bring a companion of this name"
        elif double:
            fault = f"it brings the {double[0]} {double[1]}, as the companion {taken[double]} does"
        if fault:
            _leave_out(entry.name, fault if double or entry.name in loaded else f"{entry.value} {fault}")
            continue
        loaded[entry.name] = companion
        taken |= dict.fromkeys(names, entry.name)
    while lacking := [name for name in loaded if not loaded.keys() >= set(loaded[name].requires)]:
        for name in lacking:
            missing = ", ".join(sorted(set(loaded[name].requires) - loaded.keys()))
            _leave_out(name, f"it requires {missing}")
        loaded = {name: companion for name, companion in loaded.items() if name not in lacking}
    return loaded


def _leave_out(name: str, reason: str) -> None:
    say(f"note: the companion {name} is left out: {reason}")


_PLACE = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")


def _fault(companion: Any) -> str:
    """What is wrong with a companion, as the end of a sentence; empty if it is valid."""
    if not isinstance(companion, Companion):
        return "must be a Companion"
    if isinstance(companion.requires, str):
        return "must have a list of names as `requires`"
    for name, known in (("kinds", get_args(Kind)), ("hooks", get_args(Hook))):
        for key in getattr(companion, name):
            if key not in known:
                near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
                hint = f"; did you mean {near[0]}?" if near else ""
                return f"must have {name} among {', '.join(known)}, but has `{key}`{hint}"
    for command in companion.commands.values():
        if not isinstance(command, Command) or command.group not in get_args(Group):
            return f"must bring a Command in a group of {', '.join(get_args(Group))}, but brings {command!r}"
    for value in _places(companion):
        if not (isinstance(value, str) and _PLACE.fullmatch(value)):
            return f"must name what it brings as `module:attribute`, but names {value!r}"
    return ""


def _places(companion: Companion) -> list[str]:
    """All values `module:attribute` of what it brings."""
    hooks: Mapping[Any, str] = companion.hooks
    each = (companion.options, companion.public_names, hooks, *companion.kinds.values())
    return [value for values in each for value in values.values()]


def _names(companion: Companion) -> Iterator[tuple[str, str]]:
    """(kind, name) of each thing the companion brings. No two companions may bring the same one."""
    for kind, values in companion.kinds.items():
        yield from ((kind.replace("_", " "), name) for name in values)
    yield from (("command", name) for name in companion.commands)
    yield from (("public name", name) for name in companion.public_names)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Send what a package prints during its import to stderr, because stdout is for translations."""
    with contextlib.redirect_stdout(sys.stderr):
        yield


def _is_ours(value: str) -> bool:
    return value.startswith(f"{__package__}.")


def _in_words(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, ImportError | UserError) and text else f"{type(error).__name__}: {text}"


def _modules_of_others() -> dict[str, str]:
    """The top-level modules of companions of other packages, with the companion's name."""
    modules: dict[str, str] = {}
    for name, companion in companions().items():
        values = [*_places(companion), *(command.module for command in companion.commands.values())]
        modules |= {value.split(":")[0].split(".")[0]: name for value in values if not _is_ours(value)}
    return modules


def blamed(error: BaseException) -> str | None:
    """A sentence that names the third-party companion whose code raised the error. None if the error comes
    from our own code, is a UserError, which already explains itself, or is an interruption.
    """
    if isinstance(error, UserError | Interrupted):
        return None
    others, trace, blame = _modules_of_others(), error.__traceback__, None
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if companion := others.get(module.split(".")[0]):
            blame = f"the companion {companion} fails in {module}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return blame and f"{blame}: {_in_words(error)}"


def hooks(name: Hook) -> Iterator[Any]:
    """The objects that companions bring for a hook. A third-party object that cannot be imported is reported
    and skipped; if calling it fails, the error is reported and the call returns None.
    """
    for companion in [one for one in companions() if name in companions()[one].hooks]:
        value = companions()[companion].hooks[name]
        try:
            brought = resolve(value, companion)
        except WorkError as error:
            say(f"note: {error}")
            continue
        yield brought if _is_ours(value) or not callable(brought) else _guarded(brought)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except Exception as error:
            if (sentence := blamed(error)) is None:
                raise
            say(f"note: {sentence}")
            return None

    return call


def brought(kind: Kind) -> dict[str, str]:
    """The things of a kind that companions bring: `module:attribute` by name."""
    return {name: value for each in companions().values() for name, value in each.kinds.get(kind, {}).items()}


def checked_class(part: Any, base: type, what: str) -> Any:
    """The part. InputError unless it is a subclass of `base`."""
    if not (isinstance(part, type) and issubclass(part, base)):
        raise InputError(
            f"{what} must be a subclass of {base.__module__}.{base.__qualname__}, but is {shown(part)}"
        )
    return part


def shown(part: Any) -> str:
    """How an error shows a third-party part: its module and name, or else its value."""
    name = getattr(part, "__qualname__", None)
    return f"{part.__module__}.{name}" if name and hasattr(part, "__module__") else repr(part)[:80]


def add_options(command: str, parser: Any) -> None:
    """Add companions' options to a command's parser."""
    for name, companion in companions().items():
        if command in companion.options:
            try:
                resolve(companion.options[command], name)(parser)
            except Exception as error:
                sentence = str(error) if isinstance(error, WorkError) else blamed(error)
                if sentence is None:
                    raise
                say(f"note: {sentence}")


def commands() -> dict[str, Command]:
    """The commands of all companions."""
    return {name: command for each in companions().values() for name, command in each.commands.items()}


def arguments_of(command: Command) -> Callable[[Any], None]:
    """The function that adds the arguments of a command. WorkError if a companion's cannot be imported."""
    owner = next((name for name, each in companions().items() if command in each.commands.values()), "")
    module, _, function = command.module.partition(":")
    return resolve(f"{module}:{function or 'add_arguments'}", owner)


def public_names() -> dict[str, str]:
    """The public names of all companions."""
    return {name: value for each in companions().values() for name, value in each.public_names.items()}


def resolve(value: str, companion: str = "") -> Any:
    """The object that `module:attribute` names. WorkError if another package lacks it."""
    module, _, attribute = value.partition(":")
    found = _imported(module, companion)
    if not (hasattr(found, attribute) or _is_ours(value)):
        raise WorkError(f"{_said_by(companion)}{value}, but {module} has no {attribute}")
    return getattr(found, attribute)


def _imported(module: str, companion: str) -> Any:
    if _is_ours(module):
        return import_module(module)
    try:
        with _quietly():
            return import_module(module)
    except (Exception, SystemExit) as error:
        raise WorkError(
            f"{_said_by(companion)}{module}, which cannot be imported ({_in_words(error)})"
        ) from error


def _said_by(companion: str) -> str:
    return f"the companion {companion} names " if companion else "an installed package names "
