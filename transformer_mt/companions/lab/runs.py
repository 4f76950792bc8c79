"""transformer-mt runs: all runs below a folder in one table, and as a page with their curves."""

import argparse
import base64
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.cli.arguments import Parser
from transformer_mt.config.error_sentences import flat
from transformer_mt.config.load import Loader
from transformer_mt.errors import InputError
from transformer_mt.files import is_locked, to_json, write_text
from transformer_mt.messages import duration, say, table
from transformer_mt.run.report import ERRORS, best_validation, events_of, metric_of, newest_step, value_of
from transformer_mt.run_folder import RunFolder

_SHOWN = 4
"""Differing keys of a run that the table has room for."""
_IGNORED = ("name", "parts")
"""Keys that do not affect a training."""


@dataclass
class Summary:
    """A run in numbers."""

    folder: str
    state: str
    """`trains`, `finished` or `stopped`."""
    update: int
    max_updates: int
    metric: str = ""
    best: float | None = None
    """The best validation score."""
    loss: float | None = None
    """The last training loss."""
    seconds_left: float | None = None
    """Of a run that trains."""
    bytes: int = 0
    differs: dict[str, Any] = field(default_factory=dict)
    """The keys and values that differ from the first run in the table."""


def add_arguments(parser: Parser) -> None:
    parser.description = "List all runs below a folder: state, best score, time left, and how they differ."
    parser.add_argument("folder", metavar="FOLDER", nargs="?", default="runs", help="default: runs")
    parser.add_argument(
        "--sort", choices=("score", "name", "update", "size"), default="score",
        help="the order of the rows (default: score, the best first)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print an object for each run, with all keys")
    parser.add_argument("--page", metavar="FILE.html", help="write a page with the table and all curves")
    parser.set_defaults(command=_runs)


def _runs(arguments: argparse.Namespace) -> int:
    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; runs are made by `transformer-mt train`")
    runs = list(runs_below(folder))
    if not runs:
        raise InputError(f"{folder}: no run is below this folder")
    summaries = in_order([summary(run) for run in runs], arguments.sort)
    configs = {str(run): _settings(run) for run in runs}
    for other in summaries[1:]:
        other.differs = differences(configs[summaries[0].folder], configs[other.folder])
    if arguments.json:
        for one in summaries:
            print(to_json(asdict(one), ensure_ascii=False))
    else:
        print(table([_row(one) for one in summaries], _HEAD))
    if arguments.page:
        page = Path(arguments.page)
        write_text(page, as_page(summaries))
        say(f"written: {page}")
    return 0


def runs_below(folder: Path) -> Iterator[RunFolder]:
    """Every run in the folder or below it."""
    for place, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if {"config.yaml", "metrics.jsonl"} <= set(names):
            below[:] = []
            yield RunFolder(place)


def summary(run: RunFolder) -> Summary:
    """Reads the state and the scores of a run from its files."""
    entries, settings = run.entries(), _settings(run)
    step = newest_step(run, entries)
    last = int(settings.get("train.max_updates", step))
    state = "trains" if is_locked(run.path) else "finished" if run.is_finished else "stopped"
    one = Summary(str(run), state, step, last, bytes=_size(run.path))
    if best := best_validation(entries):
        one.metric = metric_of([best])
        one.best = value_of(best, one.metric)
    if train := events_of(entries, "train"):
        one.loss = train[-1]["loss"]
        before = train[-2] if len(train) > 1 else {"step": 0, "seconds": 0.0}
        updates, seconds = train[-1]["step"] - before["step"], train[-1]["seconds"] - before["seconds"]
        if state == "trains" and updates > 0:
            one.seconds_left = max(0.0, (last - step) * seconds / updates)
    return one


def in_order(summaries: list[Summary], order: str) -> list[Summary]:
    """Sorted by score or size (the best or largest first), by update or by name."""

    def of_score(one: Summary) -> float:
        if one.best is None:
            return math.inf
        return one.best if one.metric in ERRORS else -one.best

    keys = {
        "score": of_score,
        "name": lambda one: one.folder,
        "update": lambda one: -one.update,
        "size": lambda one: -one.bytes,
    }
    return sorted(summaries, key=keys[order])


def differences(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys and values of `other` that differ from `first`; a missing key has the value None."""
    return {key: other.get(key) for key in first | other if first.get(key) != other.get(key)}


def _settings(run: RunFolder) -> dict[str, Any]:
    """Reads the config with dotted keys. It is not validated, so runs of other versions can be read, too."""
    try:
        values = yaml.load(run.config_file.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, OSError) as error:
        raise InputError(f"{run.config_file}: cannot be read: {error}") from None
    dotted = flat(values if isinstance(values, dict) else {})
    return {key: value for key, value in dotted.items() if key.split(".")[0] not in _IGNORED}


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a training may remove a checkpoint meanwhile
            size += path.stat().st_size if path.is_file() else 0
    return size


_HEAD = ["run", "state", "update", "best", "training loss", "left", "MB", "differs from the first in"]


def _row(one: Summary) -> list[str]:
    keys = [f"{key}={to_json(value, ensure_ascii=False)}" for key, value in one.differs.items()]
    more = [f"and {len(keys) - _SHOWN} more"] if len(keys) > _SHOWN else []
    return [
        one.folder,
        one.state,
        f"{one.update:,}/{one.max_updates:,}",
        "" if one.best is None else f"{one.metric} {one.best:.2f}",
        "" if one.loss is None else f"{one.loss:.3f}",
        "" if one.seconds_left is None else duration(one.seconds_left),
        f"{one.bytes / 1e6:,.0f}",
        " ".join([*keys[:_SHOWN], *more]),
    ]


_PAGE = """\
<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Runs</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 15px sans-serif; margin: 1em auto; max-width: 75em; padding: 0 1em; }}
  table {{ border-collapse: collapse; display: block; overflow-x: auto; }}
  td, th {{ padding: .3em .7em; border-bottom: 1px solid #8885; text-align: left; }}
  img {{ max-width: 100%; }}
</style>
<h1>Runs</h1>
<table><tr>{head}</tr>{rows}</table>
<p><img alt="Curves of the runs" src="data:image/png;base64,{curves}"></p>
</html>
"""


def as_page(summaries: Sequence[Summary]) -> str:
    """One HTML file that needs nothing else."""
    from transformer_mt.companions.lab.pictures import curves

    with tempfile.TemporaryDirectory() as place:
        picture = Path(place) / "curves.png"
        runs = [(one.folder, RunFolder(one.folder).entries()) for one in summaries]
        curves(runs, "updates", picture)
        encoded = base64.b64encode(picture.read_bytes()).decode()
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in _row(one)) for one in summaries)
    return _PAGE.format(
        head="".join(f"<th>{escape(name)}</th>" for name in _HEAD),
        rows="".join(f"<tr>{row}</tr>\n" for row in rows),
        curves=encoded,
    )
