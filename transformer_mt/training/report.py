"""report.md of a run: what it is, how it went, what it says."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformer_mt import plots
from transformer_mt.config import Config
from transformer_mt.data.corpus import describe
from transformer_mt.errors import InputError
from transformer_mt.files import write_text


def write_report(
    folder: Path, config: Config, entries: Sequence[dict[str, Any]], say: Callable[[str], None]
) -> None:
    """Write report.md and learning_curve.png; without matplotlib the report has no picture and says why."""
    try:
        plots.learning_curve(entries, folder / "learning_curve.png")
        picture = "![learning curve](learning_curve.png)"
    except InputError as error:
        picture = f"No picture: {error}."
    except OSError as error:
        say(f"warning: could not draw the learning curve: {error}")
        picture = "No picture: it could not be written."
    write_text(folder / "report.md", report(config, entries, picture))


def report(config: Config, entries: Sequence[dict[str, Any]], picture: str) -> str:
    """The report as Markdown."""
    starts = [entry for entry in entries if entry["event"] == "start"]
    trained = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] in ("valid", "average")]
    ends = [entry for entry in entries if entry["event"] == "end"]
    lines = [
        f"# {config.name}",
        "",
        f"{describe(config.data.train)}: {config.data.source_lang} to {config.data.target_lang}.",
        "",
    ]
    if starts:
        start = starts[-1]
        machine = start["gpu"] or f"{start['processor']}, {start['cores']} cores, {start['threads']} threads"
        lines += [
            "| | |",
            "|---|---|",
            f"| parameters | {start['parameters']:,} |",
            f"| precision | {start['precision']} on {start['device']} |",
            f"| machine | {machine} |",
            f"| versions | transformer_mt {start['transformer_mt']}, torch {start['torch']}, Python "
            f"{start['python']} |",
            f"| commit | {start['commit']} |",
            f"| seed | {config.seed} |",
        ]
        if trained:
            last = trained[-1]
            speed = last["tokens"] / max(1e-9, last["seconds"])
            trained_on = f"{last['epoch']:.1f} epochs, {last['tokens']:,} target tokens"
            lines += [
                f"| updates | {last['step']:,} of {config.train.max_updates:,} ({trained_on}) |",
                f"| training time | {last['seconds'] / 60:.1f} min in updates, {speed:,.0f} target tokens "
                "per second |",
                f"| skipped updates | {last['skipped']:,} |",
            ]
        if ends:
            lines.append(f"| model | {ends[-1]['model']} |")
    lines += ["", picture, ""]
    if valid:
        lines += [
            "## Validation",
            "",
            "Greedy translations.",
            "",
            "| update | minutes | loss | perplexity | BLEU | chrF | |",
            "|---|---|---|---|---|---|---|",
        ]
        for entry in valid:
            bleu, chrf = (score["value"] for score in entry["scores"])
            mark = "average" if entry["event"] == "average" else "best so far" if entry.get("is_best") else ""
            row = [
                f"{entry['step']:,}",
                f"{entry['seconds'] / 60:.1f}",
                f"{entry['loss']:.3f}",
                f"{entry['ppl']:.2f}",
                f"{bleu:.2f}",
                f"{chrf:.2f}",
                mark,
            ]
            lines.append("| " + " | ".join(row) + " |")
        lines += [""] + [f"`{score['signature']}`  " for score in valid[-1]["scores"]]
        lines += ["", "## Samples", ""]
        for src, reference, translation in valid[-1]["samples"]:
            lines += [f"- {src}", f"  - is: {reference}", f"  - got: {translation}"]
    return "\n".join(lines) + "\n"
