"""Several systems on several test sets: scores, intervals, and whether differences are significant."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean

from transformer_mt.companions.lab.significance import (
    SAMPLES,
    Test,
    bootstrap_p,
    bootstrap_values,
    holm,
    interval,
    randomisation_p,
    scores,
)
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import Metric, Statistics
from transformer_mt.evaluation.set_evaluation import SeenShare
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.stages.text_stages import text_flags

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class System:
    """A side of the comparison: one run, or runs that differ in the seed."""

    name: str
    runs: list[list[list[str]]]
    """Translations of each run, of each test set in order."""
    seen: tuple[SeenShare, ...] = ()
    """The part of each test set that is known to it; empty for files of translations."""
    search: str = NOT_KNOWN
    """The search in a few words."""
    seeds: tuple[int, ...] = ()
    """The seed of each run; empty where they are not known."""


@dataclass(frozen=True)
class Cell:
    """A metric of a system on a test set."""

    test: str
    system: str
    metric: str
    values: list[float]
    """The value of each run."""
    low: float
    high: float
    """The 95 % interval of the mean over the runs."""
    p: float | None
    """The p-value of the difference from the first system, corrected for the number of systems; None for
    the first.
    """
    runs_disagree: bool
    """With some seeds better than the first system, with others worse."""

    @property
    def value(self) -> float:
        """The mean over the runs."""
        return mean(self.values)


@dataclass(frozen=True)
class Comparison:
    """The cells of a table: systems x test sets x metrics."""

    tests: list[EvaluationSet]
    systems: list[System]
    metrics: list[Metric]
    cells: list[Cell]
    signatures: list[tuple[str, str]]
    """(metric, signature), once each."""
    test: Test
    samples: int
    statistics: dict[tuple[str, str, str], list[Statistics]]
    """For each (test set, system, metric) the statistics of each run."""

    def cell(self, test: str, system: str, metric: str) -> Cell:
        """The cell of these names."""
        return next(c for c in self.cells if (c.test, c.system, c.metric) == (test, system, metric))

    def seen(self, test: str, system: str) -> str:
        """The share of the test set that is known to the system, in words."""
        known = next(one.seen for one in self.systems if one.name == system)
        names = [one.name for one in self.tests]
        return str(known[names.index(test)]) if known else ""

    @property
    def is_marked(self) -> bool:
        """True if a system knows sentences of a test set, or may."""
        return any(share.count or not share.is_complete for one in self.systems for share in one.seen)


def check_names(names: Sequence[str], test: str) -> None:
    """InputError where randomisation is asked for with several runs of a system; a name stands for each."""
    if test == "randomisation" and len(set(names)) < len(names):
        raise InputError("randomisation must compare single runs, but a system has several; use bootstrap")


def compare(
    tests: Sequence[EvaluationSet],
    systems: Sequence[System],
    metrics: Sequence[Metric] | Callable[[EvaluationSet], Sequence[Metric]],
    test: Test = "bootstrap",
    samples: int = SAMPLES,
) -> Comparison:
    """All systems on all test sets; the others are compared with the first. `metrics` are the same for all
    test sets, or a function that gives those of each, of the same names.

    Raises InputError where randomisation is asked for with several runs of a system.
    """
    check_names([system.name for system in systems for _ in system.runs], test)
    cells: list[Cell] = []
    signatures: dict[tuple[str, str], None] = {}
    statistics: dict[tuple[str, str, str], list[Statistics]] = {}
    metrics_of = metrics if callable(metrics) else lambda test_set: metrics
    for number, test_set in enumerate(tests):
        for metric in metrics_of(test_set):
            runs_of = [
                [metric.statistics(test_set.sources, run[number], test_set.references) for run in system.runs]
                for system in systems
            ]
            signatures[metric.name, metric.signature(test_set.references)] = None
            for system, runs in zip(systems, runs_of):
                statistics[test_set.name, system.name, metric.name] = runs
            cells += _cells(test_set.name, systems, metric, runs_of, test, samples)
    return Comparison(
        list(tests),
        list(systems),
        list(metrics_of(tests[0])) if tests else [],
        cells,
        list(signatures),
        test,
        samples,
        statistics,
    )


def _cells(
    test_set: str,
    systems: Sequence[System],
    metric: Metric,
    runs_of: Sequence[Sequence[Statistics]],
    test: Test,
    samples: int,
) -> list[Cell]:
    """A column of the table: one metric of all systems on one test set."""
    samples_of = [bootstrap_values(metric, runs, samples) for runs in runs_of]
    if test == "bootstrap":
        p = [
            bootstrap_p(metric, runs_of[0], runs, (samples_of[0], values))
            for runs, values in zip(runs_of[1:], samples_of[1:])
        ]
    else:
        p = [randomisation_p(metric, runs_of[0][0], runs[0], samples) for runs in runs_of[1:]]
    cells = []
    baseline = scores(metric, runs_of[0]).tolist()
    for system, runs, values, corrected in zip(systems, runs_of, samples_of, [None, *holm(p)]):
        of_metric = scores(metric, runs).tolist()
        differences = _differences(systems[0], baseline, system, of_metric)
        disagree = any(d > 0 for d in differences) and any(d < 0 for d in differences)
        low, high = interval(values, metric, runs)
        cells.append(Cell(test_set, system.name, metric.name, of_metric, low, high, corrected, disagree))
    return cells


def _differences(first: System, baseline: list[float], other: System, values: list[float]) -> list[float]:
    """The differences of runs with the same seed, or of as many runs in their order where no seeds are
    known.
    """
    if first.seeds and other.seeds:
        of_seed = dict(zip(first.seeds, baseline))
        return [value - of_seed[seed] for seed, value in zip(other.seeds, values) if seed in of_seed]
    return [b - a for a, b in zip(baseline, values)] if len(values) == len(baseline) else []


_LENGTHS = (1, 6, 11, 21, 31, 51)
_COUNTS = (0, 1, 5, 20, 100)
FLAGS = {
    "copied": "the source copied",
    "repeating": "words repeated",
    "length_ratio": "much longer or shorter than the source",
    "missing_number": "a number missing",
    "missing_url": "an address missing",
}
"""The flags of `text_flags`, in plain words."""


@dataclass(frozen=True)
class ScoredPart:
    """Some sentences of a test set."""

    label: str
    rows: list[int]


def words_of(text: str) -> list[str]:
    """The words of a text without capitals, in a script without spaces its characters."""
    return [text[begin:end].lower() for begin, end in find_words(text)]


def count_words(sentences: Iterable[str]) -> Counter[str]:
    """Counts of the words in the sentences."""
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(words_of(sentence))
    return counts


def parts_by_length(test: EvaluationSet) -> list[ScoredPart]:
    """The sentences by the number of words of the source."""
    return _parts([len(words_of(src)) for src in test.sources], _LENGTHS)


def parts_by_rarest_word(test: EvaluationSet, counts: Counter[str]) -> list[ScoredPart]:
    """The sentences by the count of the source's rarest word that has a letter."""
    rarest = []
    for src in test.sources:
        words = [word for word in words_of(src) if any(map(str.isalpha, word))]
        rarest.append(min((counts[word] for word in words), default=_COUNTS[-1]))
    return _parts(rarest, _COUNTS)


def part_scores(comparison: Comparison, test: EvaluationSet, part: ScoredPart) -> dict[str, list[float]]:
    """For each metric the score of each system on the part, the mean over its runs."""
    of_parts = {}
    for metric in comparison.metrics:
        values = []
        for system in comparison.systems:
            runs = comparison.statistics[test.name, system.name, metric.name]
            scores = [metric.value(run[part.rows].sum(axis=0).tolist()) for run in runs]
            values.append(sum(scores) / len(scores))
        of_parts[metric.name] = values
    return of_parts


def length_ratio(test: EvaluationSet, translations: Sequence[str]) -> float:
    """Words of the translations for each word of the first references."""
    references = sum(len(words_of(targets[0])) for targets in test.references)
    return sum(len(words_of(text)) for text in translations) / max(1, references)


def flags_of(source: str, translation: str) -> list[str]:
    """The suspicions about a translation, as keys of FLAGS."""
    return list(text_flags(source, translation, len(words_of(source)), words_of(translation)))


def _parts(values: Sequence[int], starts: Sequence[int]) -> list[ScoredPart]:
    parts = []
    for start, end in pairwise([*starts, math.inf]):
        rows = [i for i, value in enumerate(values) if start <= value < end]
        label = f"{start}" if end == start + 1 else f"{start}–{end - 1}"
        if end == math.inf:
            label = f"{start} or more"
        if rows:
            parts.append(ScoredPart(label, rows))
    return parts
