"""Gain and forgetting of a fine-tuning: the run it began from and the new one on the same test sets."""

from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.companions.lab.comparison import Cell, Comparison, System, compare
from transformer_mt.companions.lab.translated import translated
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.evaluation.metrics import metrics_by_test
from transformer_mt.evaluation.set_evaluation import SEEN_NOTE, SystemRecord
from transformer_mt.messages import say, table, with_names
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.planner import can_translate

OF_PARENT = "parent-"
"""Before the names of the parent's test sets."""
_SIGNIFICANT = 0.05


def gain_and_forgetting(
    parent: RunFolder, child: RunFolder, tests: Sequence[EvaluationSet], device: str
) -> str:
    """The table of both runs on the sets that both translate; empty without one."""
    configs = [run.config() for run in (parent, child)]
    common = []
    for test in tests:
        if not test.languages or all(
            can_translate(config.data.directions, config.data.has_language_pieces, test.languages)
            for config in configs
        ):
            common.append(test)
        else:
            say(f"{test.corpus}: no comparison: {parent} or {child} cannot translate it")
    if not common:
        return ""
    systems = []
    for run in (parent, child):
        record = SystemRecord([run])
        seen = tuple(record.share(test) for test in common)
        search = run.config().decode.in_words
        systems.append(System(str(run), [translated(run, common, device)], seen, search))
    rules, target_lang = configs[1].evaluate, configs[1].data.target_lang
    return before_and_after(compare(common, systems, metrics_by_test(rules, target_lang)))


def before_and_after(comparison: Comparison) -> str:
    """A Markdown table of a comparison of two systems, the parent first."""
    before, after = (system.name for system in comparison.systems)
    rows = []
    for test in comparison.tests:
        seen = [" / ".join(comparison.seen(test.name, name) for name in (before, after))]
        for metric in comparison.metrics:
            old = comparison.cell(test.name, before, metric.name)
            new = comparison.cell(test.name, after, metric.name)
            change, of_parent = new.value - old.value, test.name.startswith(OF_PARENT)
            rows.append(
                [
                    (replace(test, corpus=f"{test.corpus} of {before}") if of_parent else test).title,
                    *(seen if comparison.is_marked else []), metric.name,
                    f"{old.value:.{metric.digits}f}", f"{new.value:.{metric.digits}f}",
                    f"{change:+.{metric.digits}f}", f"{new.p:.3f}",
                    _in_a_word(change, new, metric.higher_is_better, of_parent),
                ]
            )  # fmt: skip
    marks = ["seen before / after"] if comparison.is_marked else []
    head = ["test set", *marks, "metric", "before", "after", "change", "p", ""]
    return (
        f"{table(rows, head)}\n\n- before: {before}\n"
        f"- p: paired bootstrap resampling, {comparison.samples:,} samples\n"
        + f"- search: {with_names((system.name, system.search) for system in comparison.systems)}\n"
        + (f"- {SEEN_NOTE}\n" if comparison.is_marked else "")
    )


def _in_a_word(change: float, cell: Cell, higher_is_better: bool | None, of_parent: bool) -> str:
    if cell.p is None or cell.p >= _SIGNIFICANT:
        return "no clear change"
    if higher_is_better is None:
        return "changed"
    if (change > 0) == higher_is_better:
        return "gained"
    return "forgotten" if of_parent else "lost"
