"""What a sweep found: one table and one picture."""

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from transformer_mt import plots
from transformer_mt.errors import InputError
from transformer_mt.evaluation.significance import paired_bootstrap
from transformer_mt.experiments.sweep_jobs import is_done
from transformer_mt.experiments.sweep_plan import Job, Sweep
from transformer_mt.files import digest, read_objects, write_text
from transformer_mt.training.report import table


@dataclass(frozen=True)
class Row:
    """One variant."""

    variant: str
    seeds: list[int]
    """Those that are done."""
    parameters: int
    tokens_per_second: float | None
    """Target tokens in training: of each seed the median of its metrics.jsonl, which no pause moves; then the
    mean. None if a training was too short for a line there.
    """
    valid: list[float]
    """BLEU on the validation set, greedy, one a seed: of the model that was kept."""
    test: list[float]
    """BLEU on the first test set, one a seed."""
    p: float | None
    """Of the paired bootstrap against the first variant with the same seed: the largest over the seeds."""


def write_table(sweep: Sweep) -> str | None:
    """Write table.md, table.json and curves.png into the sweep's folder; gives back the table, None before
    anything is done.
    """
    done = {job: _entries(job.folder) for job in sweep.jobs if is_done(job)}
    if not done:
        return None
    rows = [row for variant in sweep.variants if (row := _row(variant, done, sweep))]
    in_order = sorted(done, key=lambda job: sweep.variants.index(job.variant))
    try:
        plots.curves([(job.variant, done[job]) for job in in_order], "updates", sweep.folder / "curves.png")
        picture = "![learning curves](curves.png)"
    except InputError as error:
        picture = f"No picture: {error}."
    text = _table(rows, sweep, done)
    write_text(sweep.folder / "table.md", f"{text}\n{picture}\n")
    write_text(sweep.folder / "table.json", json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return text


def _entries(folder: Path) -> list[dict[str, Any]]:
    return read_objects(folder / "metrics.jsonl")


def _row(variant: str, done: dict[Job, list[dict[str, Any]]], sweep: Sweep) -> Row | None:
    mine = [job for job in done if job.variant == variant]
    if not mine:
        return None
    speeds = [
        [entry["tokens_per_second"] for entry in done[job] if entry["event"] == "train"] for job in mine
    ]
    first = {job.seed: job for job in done if job.variant == sweep.variants[0]}
    pairs = [(first[job.seed], job) for job in mine if job.seed in first and job.config.data.test]
    return Row(
        variant,
        [job.seed for job in mine],
        [entry for entry in done[mine[0]] if entry["event"] == "start"][-1]["parameters"],
        statistics.mean(map(statistics.median, speeds)) if all(speeds) else None,
        [_kept(done[job]) for job in mine],
        [_bleu(_scores(job)["scores"]) for job in mine if job.config.data.test],
        max(_p(*pair) for pair in pairs) if variant != sweep.variants[0] and pairs else None,
    )


def _kept(entries: Sequence[dict[str, Any]]) -> float:
    """Validation BLEU of the model in the run's folder: the average where it was chosen, else the best single
    one.
    """
    average = [entry for entry in entries if entry["event"] == "average" and entry["chosen"]]
    if average:
        return _bleu(average[-1]["scores"])
    return _bleu([entry for entry in entries if entry["event"] == "valid" and entry["is_best"]][-1]["scores"])


def _scores(job: Job) -> dict[str, Any]:
    return json.loads((job.folder / "evaluation" / "test-0.scores.json").read_text(encoding="utf-8"))


def _bleu(scores: Sequence[dict[str, Any]]) -> float:
    return next(score["value"] for score in scores if score["name"] == "BLEU")


def _p(first: Job, other: Job) -> float:
    baseline, system = (job.folder / "evaluation" / "test-0.jsonl" for job in (first, other))
    settings, language = other.config.evaluate, other.config.data.target_lang
    return _p_of_files(
        baseline, digest(baseline), system, digest(system), language, settings.tokenize, settings.lowercase
    )


@cache  # a table is made after each training, and a second of each p is many with seventy pairs
def _p_of_files(
    baseline: Path,
    baseline_digest: str,
    system: Path,
    system_digest: str,
    language: str,
    tokenize: str,
    lowercase: bool,
) -> float:
    rows = read_objects(system)
    baselines = [row["translation"] for row in read_objects(baseline)]
    translations, references = ([row[key] for row in rows] for key in ("translation", "reference"))
    return paired_bootstrap(baselines, translations, references, language, tokenize, lowercase)


def _table(rows: Sequence[Row], sweep: Sweep, done: dict[Job, list[dict[str, Any]]]) -> str:
    tested = any(row.test for row in rows)
    head = [
        "variant",
        "parameters",
        "tokens/s",
        "validation BLEU",
        *(["test BLEU", "p"] if tested else []),
        "seeds",
    ]
    lines = []
    for row in rows:
        p = "" if row.p is None else f"{row.p:.3f}"
        cells = [
            row.variant,
            f"{row.parameters:,}",
            f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "",
            _spread(row.valid),
        ]
        cells += [_spread(row.test), p] if tested else []
        lines.append([*cells, str(len(row.seeds))])
    first = next(iter(done))  # all are scored by the same rules: the plan sees to it
    valid = next(entry for entry in done[first] if entry["event"] == "valid")["scores"][0]["signature"]
    notes = [f"validation: greedy, `{valid}`"]
    if tested:
        signature = next(score["signature"] for score in _scores(first)["scores"] if score["name"] == "BLEU")
        searches = _by_variant(done, _search)
        notes.append(f"test: {searches}, `{signature}`")
        if any(row.p is not None for row in rows):
            notes.append(
                f"p: sacreBLEU's paired bootstrap against {rows[0].variant} with the same seed, the largest "
                "over the seeds"
            )
    notes.append(f"trained: {_by_variant(done, lambda job: _machine(done[job]))}")
    missing = len(sweep.jobs) - len(done)
    if missing:
        notes.append(f"{missing} of {len(sweep.jobs)} trainings are not done yet")
    return "\n".join([table(lines, head), "", *(f"- {note}" for note in notes)]) + "\n"


def _by_variant(done: Iterable[Job], fact: Callable[[Job], str]) -> str:
    """A fact about all that is done: once if it is one, else with the variants of which it is true."""
    whose: dict[str, dict[str, None]] = {}
    for job in done:
        whose.setdefault(fact(job), {})[job.variant] = None
    if len(whose) == 1:
        return next(iter(whose))
    return "; ".join(f"{what} ({', '.join(variants)})" for what, variants in whose.items())


def _search(job: Job) -> str:
    decode = _scores(job)["decode"]
    if decode["search"] != "beam":
        return str(decode["search"])
    return f"beam {decode['beam']}, length penalty {decode['length_penalty']}"


def _machine(entries: Sequence[dict[str, Any]]) -> str:
    """Where and by what it was trained, of the last time it was started: speeds can be compared on one
    machine alone.
    """
    start = [entry for entry in entries if entry["event"] == "start"][-1]
    device = start.get("gpu") or f"{start.get('processor')}, {start.get('threads')} threads"
    return f"commit {start.get('commit')}, {device}, {start.get('precision')}, torch {start.get('torch')}"


def _spread(values: Sequence[float]) -> str:
    """Mean and sample deviation."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean
