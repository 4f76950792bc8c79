"""Gain and forgetting of a fine-tuning: the run it began from and the new one on the same test sets."""

from collections.abc import Collection

from transformer_mt.evaluation.comparison import Cell, Comparison
from transformer_mt.markdown import table

FINE_TUNING_FILE = "fine_tuning.md"
_SIGNIFICANT = 0.05


def before_and_after(comparison: Comparison, maybe_seen: Collection[str] = ()) -> str:
    """A Markdown table of a comparison of two systems, the parent first. The sets called in `maybe_seen` may
    have been in the new model's training.
    """
    before, after = (system.name for system in comparison.systems)
    rows = []
    for test in comparison.tests:
        for metric in comparison.metrics:
            old = comparison.cell(test.name, before, metric.name)
            new = comparison.cell(test.name, after, metric.name)
            change = new.value - old.value
            mark = " *" if test.name in maybe_seen else ""
            rows.append(
                [
                    test.corpus + mark, metric.name, f"{old.value:.{metric.digits}f}",
                    f"{new.value:.{metric.digits}f}", f"{change:+.{metric.digits}f}",
                    f"{new.p:.3f}", _in_a_word(change, new, metric.higher_is_better),
                ]
            )  # fmt: skip
    head = ["test set", "metric", "before", "after", "change", "p", ""]
    return (
        f"{table(rows, head)}\n\n- before: {before}\n"
        f"- p: paired bootstrap resampling, {comparison.samples:,} samples\n"
        + (
            "- \\*: may have been trained on: the parent has not recorded what it was scored on\n"
            if maybe_seen
            else ""
        )
    )


def _in_a_word(change: float, cell: Cell, higher_is_better: bool | None) -> str:
    if cell.p is None or cell.p >= _SIGNIFICANT:
        return "no clear change"
    if higher_is_better is None:
        return "changed"
    return "gained" if (change > 0) == higher_is_better else "forgotten"
