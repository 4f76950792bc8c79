"""Pictures: the learning curve of a run. Needs the extra `plot` (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import InputError


def learning_curve(entries: Sequence[dict[str, Any]], path: Path) -> None:
    """Loss above, BLEU below, against updates, from the entries of metrics.jsonl."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'transformer-mt[plot]'") from None

    train = [entry for entry in entries if entry["event"] == "train"]
    valid = [entry for entry in entries if entry["event"] == "valid"]
    figure = Figure(figsize=(7, 6), layout="constrained")
    FigureCanvasAgg(figure)
    losses, bleus = figure.subplots(2, 1, sharex=True)
    losses.plot(
        [e["step"] for e in train], [e["loss"] for e in train], label="training (smoothed labels)", color="tab:blue"
    )
    losses.plot(
        [e["step"] for e in valid], [e["loss"] for e in valid], label="validation", color="tab:orange", marker="o", ms=3
    )
    losses.set_ylabel("loss per target token (nats)")
    if train or valid:
        losses.legend(frameon=False)
    bleus.plot(
        [e["step"] for e in valid], [e["scores"][0]["value"] for e in valid], color="tab:green", marker="o", ms=3
    )
    bleus.set_ylabel("validation BLEU (greedy)")
    bleus.set_xlabel("updates")
    for axes in (losses, bleus):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
