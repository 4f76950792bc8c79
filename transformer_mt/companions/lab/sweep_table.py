"""The results of a sweep: one table and one picture."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformer_mt.companions.lab import pictures
from transformer_mt.companions.lab.comparison import Cell, Comparison, System, compare
from transformer_mt.companions.lab.comparison_page import as_markdown
from transformer_mt.companions.lab.sweep_jobs import Job, Sweep, is_done
from transformer_mt.companions.lab.translated import read_translations, set_of_file
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import metric_names, metrics_by_test
from transformer_mt.evaluation.set_evaluation import UNKNOWN, SystemRecord
from transformer_mt.files import to_json, write_text
from transformer_mt.messages import table, with_names
from transformer_mt.run_folder import RunFolder, facts_of


@dataclass(frozen=True)
class VariantRow:
    """One variant."""

    variant: str
    seeds: list[int]
    """The seeds that are done."""
    parameters: int
    tokens_per_second: float | None
    """Target tokens per second in training: the mean over the seeds of the median in each metrics.jsonl,
    which pauses do not affect. None if a training was too short to log its speed.
    """
    valid: list[float]
    """For each seed, the validation score, with greedy search, of the model that was kept. The metric is the
    first one in the first job's validations; seeds that were validated with another metric are left out.
    """
    test: list[Cell]
    """The metrics of each test set, BLEU and chrF unless the config names others."""


def write_table(sweep: Sweep) -> str | None:
    """Write table.md, table.json and curves.png into the sweep's folder. Returns the table, or None if no job
    is done yet.
    """
    done = {job: RunFolder(job.folder).entries() for job in sweep.jobs if is_done(job)}
    if not done:
        return None
    comparison = _compare(list(done), sweep)
    metric = _validation_metric(next(iter(done.values())))
    rows = [row for variant in sweep.variants if (row := _row(variant, done, metric, comparison))]
    in_order = sorted(done, key=lambda job: sweep.variants.index(job.variant))
    try:
        pictures.curves(
            [(job.variant, done[job]) for job in in_order], "updates", sweep.folder / "curves.png"
        )
        picture = "![learning curves](curves.png)"
    except InputError as error:
        picture = f"No picture: {error}."
    text = _table(rows, sweep, done, metric, comparison)
    write_text(sweep.folder / "table.md", f"{text}\n{picture}\n")
    write_text(sweep.folder / "table.json", to_json([asdict(row) for row in rows], indent=1) + "\n")
    return text


def _compare(done: Sequence[Job], sweep: Sweep) -> Comparison | None:
    """Compare the variants on the test sets, with the seeds that are done. None if no set is translated."""
    config = sweep.jobs[0].config
    if not config.data.directions:
        return None
    tests = [set_of_file(file) for file in _outputs(done[0])]
    if not tests:
        return None
    tests = [
        replace(test, corpus=corpus.describe(), languages=config.data.languages_of(corpus))
        for test, corpus in zip(tests, config.data.test)
    ]
    systems = []
    for variant in sweep.variants:
        if jobs_of_variant := [job for job in done if job.variant == variant]:
            runs = [
                [read_translations(*outputs) for outputs in zip(_outputs(job), tests)]
                for job in jobs_of_variant
            ]
            record = SystemRecord([RunFolder(job.folder) for job in jobs_of_variant])
            search = RunFolder(jobs_of_variant[0].folder).config().decode.in_words
            seeds = tuple(job.seed for job in jobs_of_variant)
            systems.append(System(variant, runs, tuple(map(record.share, tests)), search, seeds))
    # TER is slow, and the table is made after each training
    rules, target_lang = config.evaluate, config.data.target_lang
    names = [name for name in metric_names(rules, target_lang) if name != "TER"]
    return compare(tests, systems, metrics_by_test(rules, target_lang, names))


def _outputs(job: Job) -> list[Path]:
    return [RunFolder(job.folder).translations_file(f"test-{i}") for i in range(len(job.config.data.test))]


def _validation_metric(entries: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """The name and the signature of the first metric of the validations."""
    score = next(entry for entry in entries if entry["event"] == "valid")["scores"][0]
    return score["name"], score["signature"]


def _row(
    variant: str,
    done: dict[Job, list[dict[str, Any]]],
    metric: tuple[str, str],
    comparison: Comparison | None,
) -> VariantRow | None:
    jobs_of_variant = [job for job in done if job.variant == variant]
    if not jobs_of_variant:
        return None
    speeds = [
        [entry["tokens_per_second"] for entry in done[job] if entry["event"] == "train"]
        for job in jobs_of_variant
    ]
    return VariantRow(
        variant,
        [job.seed for job in jobs_of_variant],
        [entry for entry in done[jobs_of_variant[0]] if entry["event"] == "start"][-1]["parameters"],
        statistics.mean(map(statistics.median, speeds)) if all(speeds) else None,
        [value for job in jobs_of_variant if (value := _kept(done[job], metric)) is not None],
        [cell for cell in comparison.cells if cell.system == variant] if comparison else [],
    )


def _kept(entries: Sequence[dict[str, Any]], metric: tuple[str, str]) -> float | None:
    """The validation score of the model in the run's folder: of the average if it was chosen, else of the
    best single checkpoint. None if this metric was not measured.
    """
    average = [entry for entry in entries if entry["event"] == "average" and entry["chosen"]]
    best = [entry for entry in entries if entry["event"] == "valid" and entry["is_best"]]
    scores = (average or best)[-1]["scores"]
    return next((s["value"] for s in scores if (s["name"], s["signature"]) == metric), None)


def _table(
    rows: Sequence[VariantRow],
    sweep: Sweep,
    done: dict[Job, list[dict[str, Any]]],
    metric: tuple[str, str],
    comparison: Comparison | None,
) -> str:
    name, signature = metric
    head = ["variant", "parameters", "tokens/s", f"validation {name}", "seeds"]
    lines = []
    for row in rows:
        cells = [
            row.variant,
            f"{row.parameters:,}",
            f"{row.tokens_per_second:,.0f}" if row.tokens_per_second else "",
            spread(row.valid),
        ]
        lines.append([*cells, str(len(row.seeds))])
    notes = [f"validation: greedy, `{signature}`"]
    if name == "perplexity":
        notes = [f"validation: `{signature}`; perplexities of different vocabularies cannot be compared"]
    machines = ((job.variant, _machine(entries)) for job, entries in done.items())
    notes.append(f"trained: {with_names(machines)}")
    missing = [f"{job.variant} (seed {job.seed})" for job in sweep.jobs if job not in done]
    if missing:
        notes.append(f"{len(missing)} of {len(sweep.jobs)} trainings are not done: {', '.join(missing)}")
    text = "\n".join([table(lines, head), "", *(f"- {note}" for note in notes)]) + "\n"
    return f"{text}\n{as_markdown(comparison)}" if comparison else text + _tables_of_texts(done, sweep)


def _tables_of_texts(done: Iterable[Job], sweep: Sweep) -> str:
    """The scores of the test sets of models that translate nothing, as `evaluate` kept them."""
    text = ""
    for number in range(len(sweep.jobs[0].config.data.test)):
        kept = [(job.variant, facts_of(RunFolder(job.folder).scores_file(f"test-{number}"))) for job in done]
        scores = [(variant, score) for variant, facts in kept for score in facts["scores"]]
        names = list(dict.fromkeys(score["name"] for _, score in scores))
        rows = []
        for variant in sorted({variant for variant, _ in kept}, key=sweep.variants.index):
            seen = dict.fromkeys(facts.get("seen", UNKNOWN) or "0 %" for one, facts in kept if one == variant)
            values = [
                [score["value"] for one, score in scores if (one, score["name"]) == (variant, name)]
                for name in names
            ]
            rows.append([variant, ", ".join(seen), *(spread(of_name, 4) for of_name in values)])
        signatures = [
            f"- {name}: {with_names((one, s['signature']) for one, s in scores if s['name'] == name)}\n"
            for name in names
        ]
        text += f"\n**{kept[0][1]['corpus']}**\n\n{table(rows, ['variant', 'seen', *names])}\n\n"
        text += "".join(signatures)
    return text


def _machine(entries: Sequence[dict[str, Any]]) -> str:
    """Machine and software of the last start of the training. Speeds can only be compared if they were
    measured on the same machine.
    """
    start = [entry for entry in entries if entry["event"] == "start"][-1]
    device = start.get("gpu") or f"{start.get('processor')}, {start.get('threads')} threads"
    return f"commit {start.get('commit')}, {device}, {start.get('precision')}, torch {start.get('torch')}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean and sample deviation."""
    if not values:
        return ""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
