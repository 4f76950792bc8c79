"""Pictures of a run: its learning curve and its confidence. They need the extra `plot` (matplotlib)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError


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
    """Confidence against chrF: (confidence, plain probability, chrF) of each part of the sentences."""
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


def events_of(entries: Sequence[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The entries of one kind."""
    return [entry for entry in entries if entry["event"] == event]


def value_of(entry: dict[str, Any], metric: str) -> float:
    """The score of this metric; nan where another one was chosen at that time."""
    return next((score["value"] for score in entry["scores"] if score["name"] == metric), math.nan)


def metric_of(entries: Sequence[dict[str, Any]]) -> str:
    """BLEU where it was measured, else the first metric."""
    names = [score["name"] for entry in entries for score in entry.get("scores", [])]
    return "BLEU" if "BLEU" in names or not names else names[0]
