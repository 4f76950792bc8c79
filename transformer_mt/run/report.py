"""Pictures of a run: its learning curve and its confidence. They need the extra `plot` (matplotlib)."""

import math
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import sentencepiece
import torch

from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.load import changed_settings
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.cleaning_rules import READ, REASONS
from transformer_mt.errors import InputError
from transformer_mt.evaluation.set_evaluation import NOT_ITS_OWN, kept_tables, matches_model
from transformer_mt.files import write_text
from transformer_mt.messages import say, table
from transformer_mt.processes import cpu_name, usable_cores
from transformer_mt.run_folder import RunFolder, facts_of
from transformer_mt.settings.objectives import objective_class
from transformer_mt.version import __version__


def new_figure(width: float, height: float) -> Any:
    """An empty figure, in inches. InputError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'transformer-mt[plot]'") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def without_frame(axes: Any) -> None:
    """Draw a grid, and no frame above and to the right."""
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def learning_curve(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss above, the first metric below, against updates, from the entries of one metrics.jsonl. Both losses
    are without label smoothing.
    """
    figure = new_figure(7, 6)
    train = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid"]
    losses, metrics = figure.subplots(2, 1, sharex=True)
    losses.plot(
        [e["step"] for e in train], [math.log(e["ppl"]) for e in train], label="training", color="tab:blue"
    )
    losses.plot(
        [e["step"] for e in valid],
        [e["loss"] for e in valid],
        label="validation",
        color="tab:orange",
        marker="o",
        ms=3,
    )
    losses.set_ylabel("loss per target token (nats)")
    if train or valid:
        losses.legend(frameon=False)
    metrics.plot(
        [e["step"] for e in valid],
        [value_of(e, metric_of(valid)) for e in valid],
        color="tab:green",
        marker="o",
        ms=3,
    )
    metrics.set_ylabel(f"validation {metric_of(valid)}")
    metrics.set_xlabel("updates")
    for axes in (losses, metrics):
        without_frame(axes)
    figure.savefig(path, dpi=110)


def reliability(bins: Sequence[Sequence[float]], path: Path) -> None:
    """Plot chrF against confidence. Each of `bins` is the (confidence, plain probability, chrF) of a part of
    the sentences.
    """
    figure = new_figure(5, 5)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.7", lw=1, label="perfect calibration")
    confidence, plain, quality = zip(*bins)
    axes.plot(plain, quality, color="tab:orange", marker="o", ms=4, label="probability of a token")
    axes.plot(confidence, quality, color="tab:blue", marker="o", ms=4, label="confidence")
    axes.set_xlabel("predicted")
    axes.set_ylabel("chrF, 0 to 1")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.legend(frameon=False)
    without_frame(axes)
    figure.savefig(path, dpi=110)


ERRORS = {"TER", "WER", "CER", "perplexity"}
"""Metrics of which less is better."""


def events_of(entries: Sequence[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The entries of one kind."""
    return [entry for entry in entries if entry["event"] == event]


def value_of(entry: dict[str, Any], metric: str) -> float:
    """The score of this metric; nan where another one was chosen at that time."""
    return next((score["value"] for score in entry["scores"] if score["name"] == metric), math.nan)


def best_validation(entries: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The validation with the best score; None if there is none with a finite one."""
    validations = events_of(entries, "valid")
    metric = metric_of(validations) if validations else ""
    scored = [entry for entry in validations if math.isfinite(value_of(entry, metric))]
    choose: Any = min if metric in ERRORS else max
    return choose(scored, key=lambda entry: value_of(entry, metric)) if scored else None


def newest_step(run: RunFolder, entries: Sequence[dict[str, Any]]) -> int:
    """The last update of a run that is in its log or in a checkpoint."""
    return max([run.newest_checkpoint_step(), *(int(entry["step"]) for entry in entries)])


def metric_of(entries: Sequence[dict[str, Any]]) -> str:
    """BLEU where it was measured, else the first metric."""
    names = [score["name"] for entry in entries for score in entry.get("scores", [])]
    return "BLEU" if "BLEU" in names or not names else names[0]


def write_report(folder: RunFolder, config: Config) -> None:
    """Write report.md and learning_curve.png from what the run's folder holds; without matplotlib the report
    has no picture and says why.
    """
    entries = folder.entries()
    try:
        learning_curve(entries, folder.learning_curve_file)
        picture = "![learning curve](learning_curve.png)"
    except InputError as error:
        picture = f"No picture: {error}."
    except OSError as error:
        say(f"warning: could not draw the learning curve: {error}")
        picture = "No picture: it could not be written."
    text = report(config, entries, picture, test_scores(folder), folder.corpora())
    for title, kept in kept_tables(folder):
        text += f"\n## {title}\n\n{kept}"
    end = f"\n## Diagnosis\n\n{sentences}\n" if (sentences := diagnosis(config, entries)) else ""
    write_text(folder.report_file, text + _confidence(folder) + end)


def _confidence(folder: RunFolder) -> str:
    """The section on confidence, with its plot; empty if the model was not calibrated."""
    facts = folder.calibration()
    if not facts:
        return ""
    before, after = facts["error_before"], facts["error_after"]
    text = (
        f"\n## Confidence\n\nFitted on {facts['sentences']:,} translations of the validation set. "
        f"On the same number of other sentences its mean error is {after:.3f} (expected calibration error, "
        f"chrF from 0 to 1); the error of the plain probabilities is {before:.3f}.\n"
    )
    try:
        reliability(facts["bins"], folder.reliability_file)
        return f"{text}\n![confidence and chrF](reliability.png)\n"
    except InputError:  # without matplotlib, as the learning curve says
        return text
    except OSError as error:
        say(f"warning: could not draw the confidence: {error}")
        return text


def report(
    config: Config,
    entries: Sequence[dict[str, Any]],
    picture: str,
    tests: Sequence[tuple[str, dict[str, Any]]] = (),
    corpora: Sequence[dict[str, Any]] = (),
) -> str:
    """The report as Markdown. `tests` are (name, what evaluation/NAME.scores.json holds), `corpora` what
    data.json holds.
    """
    names = ", ".join(entry.title for entry in config.data.entries)
    learned = [f"{source} to {target}" for source, target in config.data.directions]
    learned += [kind.title for kind in map(objective_class, config.data.objectives) if not kind.translates]
    parts = [f"# {config.name}", f"{names}: {', '.join(learned)}.", facts_table(config, entries), picture]
    parts += [
        f"## Test\n\n{tests_table(tests)}" if tests else "",
        _validations(entries),
        _samples(entries),
        _data(corpora),
        f"## Settings that differ from the defaults\n\n```yaml\n{changed_settings(config)}```",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def facts_table(config: Config, entries: Sequence[dict[str, Any]]) -> str:
    starts, trained, ends = (
        [e for e in entries if e["event"] == event] for event in ("start", "train", "end")
    )
    if not starts:
        return ""
    start = starts[-1]
    versions = f"transformer_mt {start['transformer_mt']}, torch {start['torch']}, Python {start['python']}"
    cpu = f"{start['processor']}, {start['cores']} cores, {start['threads']} threads"
    rows = [
        ("network", _network(config.model)),
        ("parameters", f"{start['parameters']:,}"),
        ("precision", f"{start['precision']} on {start['device']}"),
        ("machine", start["gpu"] or cpu),
        ("versions", versions),
        ("commit", start["commit"]),
        ("seed", config.seed),
    ]
    if config.init_from:
        rows.append(("fine-tuned from", str(config.init_from)))
    # The end is later than the last line of updates, unless train.log_every divides its step.
    if counted := [*trained[-1:], *(end for end in ends[-1:] if "tokens" in end)]:
        last = max(counted, key=lambda entry: entry["step"])
        speed = last["tokens"] / max(1e-9, last["seconds"])
        estimated = f" (estimated: {estimate / 60:.1f})" if (estimate := last.get("estimated")) else ""
        trained_on = f"{last['epoch']:.1f} epochs, {last['tokens']:,} target tokens"
        rows += [
            ("updates", f"{last['step']:,} of {config.train.max_updates:,} ({trained_on})"),
            (
                "training time",
                f"{last['seconds'] / 60:.1f} min in updates{estimated}, {speed:,.0f} target tokens/s",
            ),
            ("skipped updates", f"{last['skipped']:,}"),
        ]
    if ends and (joules := ends[-1].get("joules")):
        used = f"{joules / 3.6e6:.3g} kWh of this machine since the training was last started"
        rows.append(("energy", used))
    rows += [(f"changed at update {step:,}", ", ".join(keys)) for step, keys in changes(entries).items()]
    if ends:
        rows.append(("model", ends[-1]["model"]))
    return table(rows, ["", ""])


def changes(entries: Sequence[dict[str, Any]]) -> dict[int, list[str]]:
    """Maps each update that the run was resumed from to the keys that were changed there. If it was resumed
    from the same update several times, only the last time counts: updates after the earlier ones are gone.
    """
    starts = {entry["step"]: entry.get("changed", []) for entry in entries if entry["event"] == "start"}
    return {step: keys for step, keys in starts.items() if keys}


def _network(model: ModelConfig) -> str:
    counts = {"encoder": model.num_encoder_layers, "decoder": model.num_decoder_layers}
    number = counts.get(model.kind) or f"{model.num_encoder_layers} + {model.num_decoder_layers}"
    layers = f"{number} layers, d_model {model.d_model}"
    if model.kind == "recurrent":
        return f"{model.recurrent.cell}, {model.recurrent.decoder} decoder, {layers}"
    return f"{model.kind}, {layers}, d_ff {model.d_ff}, {model.num_heads} heads, {model.norm}-norm"


def test_scores(folder: RunFolder) -> list[tuple[str, dict[str, Any]]]:
    """The test scores of the model that is in the folder now. Leaves out scores of earlier models, scores
    that need more than this model alone (an ensemble, another tag), and scores by `compare` of sets that
    `evaluate` has scored, too.
    """
    files = {
        folder.set_of(file): file
        for file in folder.scores_files()
        if matches_model(file, folder) and not file.name.startswith(NOT_ITS_OWN)
    }
    return [
        (name, facts)
        for name, file in files.items()
        if not (name.startswith("compare-") and name.removeprefix("compare-") in files)
        and (facts := facts_of(file))
    ]


def _data(corpora: Sequence[dict[str, Any]]) -> str:
    """Kept and dropped pairs of each training corpus: a column a corpus."""
    if not corpora:
        return ""
    reasons = [name for name in (READ, *REASONS) if any(corpus["counts"].get(name) for corpus in corpora)]
    rows = [[reason, *(f"{corpus['counts'].get(reason, 0):,}" for corpus in corpora)] for reason in reasons]
    for key in ("source_tokens", "target_tokens"):
        rows.append([key.replace("_", " "), *(f"{corpus[key]:,}" for corpus in corpora)])
    rows.append(["uses per epoch", *(f"{corpus['uses_per_epoch']:g}" for corpus in corpora)])
    return f"## Training pairs\n\n{table(rows, ['', *(corpus['name'] for corpus in corpora)])}"


def tests_table(tests: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """A row for each test set; the signatures of the metrics below."""
    names = list(dict.fromkeys(score["name"] for _, facts in tests for score in facts["scores"]))
    seen = ["seen"] if any(facts.get("seen") for _, facts in tests) else []
    rows = [
        (
            facts.get("corpus") or name,
            f"{facts['sentences']:,}",
            *(facts.get("seen", "") for _ in seen),
            facts.get("search", ""),
            *(score_cell(facts["scores"], name) for name in names),
        )
        for name, facts in tests
    ]
    signatures = signature_lines(score for _, facts in tests for score in facts["scores"])
    return f"{table(rows, ['test set', 'sentences', *seen, 'search', *names])}\n\n{signatures}"


def _validations(entries: Sequence[dict[str, Any]]) -> str:
    valid = [entry for entry in entries if entry["event"] in ("valid", "average")]
    if not valid:
        return ""
    names = [score["name"] for score in valid[-1]["scores"] if score["name"] != "perplexity"]
    sets = [(scored["name"], scored["scores"][0]["name"]) for scored in valid[-1].get("sets", [])]
    rows = [
        (
            f"{entry['step']:,}",
            f"{entry['seconds'] / 60:.1f}",
            f"{entry['loss']:.3f}",
            f"{entry['ppl']:.2f}",
            *(score_cell(entry["scores"], name) for name in names),
            *(_score_of_set(entry, name, metric) for name, metric in sets),
            _role(entry),
        )
        for entry in valid
    ]
    head = ["update", "minutes", "loss", "perplexity", *names, *map(" ".join, sets), ""]
    translated = "Greedy translations." if valid[-1]["samples"] else ""
    signatures = signature_lines(s for entry in valid for s in entry["scores"] if s["name"] in names)
    return "\n\n".join(filter(None, ["## Validation", translated, table(rows, head), signatures]))


def _role(entry: dict[str, Any]) -> str:
    if entry["event"] == "average":
        return "average, chosen" if entry.get("chosen") else "average, not chosen"
    return "best so far" if entry.get("is_best") else ""


def _score_of_set(entry: dict[str, Any], name: str, metric: str) -> str:
    """The score of a validation set; empty where the set was not there at that time."""
    sets = {scored["name"]: scored["scores"] for scored in entry.get("sets", [])}
    return score_cell(sets.get(name, []), metric)


def score_cell(scores: Sequence[dict[str, Any]], name: str) -> str:
    """The score of this name; empty where another metric was chosen at that time."""
    return next(
        (f"{score['value']:.{score.get('digits', 2)}f}" for score in scores if score["name"] == name), ""
    )


def signature_lines(scores: Any) -> str:
    """One line for each distinct metric and signature."""
    lines = dict.fromkeys(f"- {score['name']}: `{score['signature']}`" for score in scores)
    return "\n".join(lines)


def _samples(entries: Sequence[dict[str, Any]]) -> str:
    published = [
        entry
        for entry in entries
        if (entry["event"] == "valid" and entry.get("is_best")) or entry.get("chosen")  # chosen: an average
    ]
    if not published or not published[-1]["samples"]:
        return ""
    lines = ["## Samples", ""]
    for src, reference, translation in published[-1]["samples"]:
        lines += [f"- {src}", f"  - reference: {reference}", f"  - translation: {translation}"]
    return "\n".join(lines)


def diagnosis(config: Config, entries: Sequence[dict[str, Any]]) -> str:
    """A text if the run never improved on its parent, if the validation loss still fell at the end, or if it
    rose while the training loss fell. Empty if the entries of metrics.jsonl show none of these.
    """
    trained = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid" and math.isfinite(entry["loss"])]
    averages = [entry for entry in entries if entry["event"] == "average"]
    ends = [entry for entry in entries if entry["event"] == "end"]
    if not ends or len(valid) < 2:
        return ""
    best = next((entry for entry in reversed(valid) if entry["is_best"]), valid[-1])
    if best["step"] == 0 and not (averages and averages[-1].get("chosen")):
        score = f"{best['scores'][0]['name']}, {best['scores'][0]['value']:.2f}"
        if config.train.monitor == "loss":
            score = f"validation loss, {best['loss']:.3f}"
        return (
            f"Fine-tuning did not help: the parent model has the best {score}. "
            f"Try a lower train.learning_rate ({config.train.learning_rate:g}), a longer train.warmup "
            f"({config.train.warmup:,}) or more pairs."
        )
    since_best = len(valid) - 1 - valid.index(best)
    stale = valid[-1].get("stale", since_best) >= config.train.patience
    lowest, last = min(valid, key=lambda entry: entry["loss"]), valid[-1]
    if last["loss"] < min(entry["loss"] for entry in valid[:-1]):
        return (
            f"The validation loss still fell at the end, from {valid[-2]['loss']:.3f} to {last['loss']:.3f}. "
            f"To train longer, raise {what_to_raise(config.train, ends[-1]['step'], stale)}."
        )
    losses = [math.log(entry["ppl"]) for entry in trained if entry["step"] >= lowest["step"]]
    if len(losses) > 1 and losses[-1] < losses[0]:
        return (
            f"The model overfits: since update {lowest['step']:,} the validation loss rose from "
            f"{lowest['loss']:.3f} to {last['loss']:.3f} while the training loss fell from "
            f"{losses[0]:.3f} to {losses[-1]:.3f}. More data, a higher model.dropout "
            f"({config.model.dropout:g}) or a smaller model may help."
        )
    return ""


def what_to_raise(train: TrainConfig, end_step: int, ended_by_patience: bool) -> str:
    """The key to raise, and whether the training can be resumed then."""
    resume = "and run the same command to resume"
    if train.schedule in ("cosine", "linear"):
        resume = "and start over, as the schedule ends with it"
    if end_step < train.max_updates and train.patience and ended_by_patience:
        return f"train.patience ({train.patience}) and run the same command to resume"
    if train.max_epochs:
        return f"train.max_epochs ({train.max_epochs:g}), and train.max_updates if it is less, {resume}"
    return f"train.max_updates ({train.max_updates:,}) {resume}"


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, commit and machine; also the name of the GPU if the device is one."""
    return {
        "transformer_mt": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sentencepiece": sentencepiece.__version__,
        "numpy": numpy.__version__,
        "processor": cpu_name(),
        "cores": usable_cores(),
        "allocator": "tcmalloc" if "tcmalloc" in os.environ.get("LD_PRELOAD", "") else "system",
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def _commit() -> str | None:
    """The commit of the repository this file belongs to; None where it was installed."""
    if not _git("ls-files", Path(__file__).name):
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*") or None


def _git(*words: str) -> str:
    try:
        return subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
