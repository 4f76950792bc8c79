"""Several systems on several test sets: scores, intervals, and whether differences are significant.

All scores are of whole test sets: the score of a sample is computed from the sums over its sentences.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import Metric, Statistics
from transformer_mt.evaluation.set_evaluation import SeenShare
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.stages.text_stages import text_flags

SAMPLES = 1000
Test = Literal["bootstrap", "randomisation"]
Values = NDArray[np.float64]
_SEED = 12345
_BLOCK = 50  # samples that are drawn at a time: memory
# Two ways to add up the same sentences may differ by this share of the largest value.
_ROUNDING = 1e-9


def bootstrap_values(metric: Metric, runs: Sequence[Statistics], samples: int = SAMPLES) -> Values:
    """[runs, samples]: the score of each run on samples of the test set's sentences, drawn with replacement
    (Koehn 2004). The samples are the same for all systems and metrics.
    """
    generator = np.random.default_rng(_SEED)
    sentences = len(runs[0])
    stacked = np.concatenate(runs, axis=1)
    sums = []
    for start in range(0, samples, _BLOCK):
        size = min(_BLOCK, samples - start)
        counts = generator.multinomial(sentences, np.full(sentences, 1 / sentences), size=size)
        sums.append(counts.astype(np.float64) @ stacked)
    return _values(metric, np.concatenate(sums), len(runs))


def interval(values: Values, metric: Metric, runs: Sequence[Statistics]) -> tuple[float, float]:
    """The 95 % interval of the mean over the runs, if sentences and seeds were drawn again.

    `values` are the [runs, samples] scores from `bootstrap_values`.
    """
    means = values.mean(axis=0) + _seed_variation([scores(metric, runs)], values.shape[1])
    low, high = np.quantile(means.clip(*metric.bounds), [0.025, 0.975])
    return float(low), float(high)


def scores(metric: Metric, runs: Sequence[Statistics]) -> Values:
    """[runs]: the score of each run on the whole test set."""
    return np.array([metric.value(run.sum(axis=0).tolist()) for run in runs])


def bootstrap_p(
    metric: Metric,
    baseline: Sequence[Statistics],
    system: Sequence[Statistics],
    values: tuple[Values, Values],
) -> float:
    """Probability of a difference of means at least as large, in either direction, if neither system were
    better. (sacreBLEU's bootstrap counts one direction, so that its p is half of this.)

    `values` are the [runs, samples] scores of both systems. The difference varies with the sentences and
    with the seeds. The sentences are resampled, with the same samples for all runs. The seeds are too few to
    resample, so their part is drawn from Student's t with the deviation of both systems' runs.
    """
    of_baseline, of_system = scores(metric, baseline), scores(metric, system)
    differences = values[1].mean(axis=0) - values[0].mean(axis=0)
    variation = differences - differences.mean() + _seed_variation([of_baseline, of_system], len(differences))
    return _share_at_least(variation, of_system.mean() - of_baseline.mean(), of_baseline)


def randomisation_p(
    metric: Metric, baseline: Statistics, system: Statistics, samples: int = SAMPLES
) -> float:
    """p of one run against another by approximate randomisation (Riezler and Maxwell 2005): the two
    translations of each sentence change sides at random.
    """
    generator = np.random.default_rng(_SEED)
    sums = np.concatenate([baseline.sum(axis=0), system.sum(axis=0)])
    moved = np.concatenate([system - baseline, baseline - system], axis=1)
    differences = []
    for start in range(0, samples, _BLOCK):
        size = min(_BLOCK, samples - start)
        changes = generator.integers(0, 2, (size, len(baseline))).astype(np.float64)
        differences.append(sums + changes @ moved)
    values = _values(metric, np.concatenate(differences), 2)
    whole = scores(metric, [baseline, system])
    return _share_at_least(values[1] - values[0], whole[1] - whole[0], whole)


def holm(p: Sequence[float]) -> list[float]:
    """The p of several comparisons with one baseline, corrected (Holm 1979): the chance that any of the
    differences found is random stays below the level at which they are judged.
    """
    order = sorted(range(len(p)), key=lambda i: p[i])
    corrected, largest = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, p[i] * (len(p) - rank)))
        corrected[i] = largest
    return corrected


def _values(metric: Metric, sums: NDArray[np.float64], runs: int) -> Values:
    """[runs, samples] of sums [samples, runs * k]."""
    parts = sums.reshape(len(sums), runs, -1)
    return np.array([[metric.value(row) for row in parts[:, run].tolist()] for run in range(runs)])


def _seed_variation(systems: Sequence[Values], samples: int) -> Values:
    """[samples]: random draws of how much the mean over the seeds of one system, or the difference of two
    systems, would change with other seeds (Student's t with pooled variance); 0 if each system has one run.
    """
    freedom = sum(len(runs) - 1 for runs in systems)
    if not freedom:
        return np.zeros(samples)
    variance = sum(((runs - runs.mean()) ** 2).sum() for runs in systems) / freedom
    error = np.sqrt(variance * sum(1 / len(runs) for runs in systems))
    return np.random.default_rng([_SEED, 1]).standard_t(freedom, samples) * error


def _share_at_least(variation: Values, difference: float, magnitude: Values) -> float:
    """The share of samples with a difference at least as large; the real difference counts as a sample."""
    least = abs(difference) - _ROUNDING * max(1.0, float(np.abs(magnitude).max()))
    return float((np.sum(np.abs(variation) >= least) + 1) / (len(variation) + 1))


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
    """True if the system is better than the first one with some seeds and worse with others."""

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
    """Raise InputError if randomisation is asked for with several runs of a system. `names` has one entry
    per run.
    """
    if test == "randomisation" and len(set(names)) < len(names):
        raise InputError("randomisation must compare single runs, but a system has several; use bootstrap")


def compare(
    tests: Sequence[EvaluationSet],
    systems: Sequence[System],
    metrics: Sequence[Metric] | Callable[[EvaluationSet], Sequence[Metric]],
    test: Test = "bootstrap",
    samples: int = SAMPLES,
) -> Comparison:
    """Score all systems on all test sets and compare each with the first system. `metrics` is a list for all
    test sets, or a function that returns the metrics of a test set, with the same names for every set.

    Raises InputError if randomisation is asked for with several runs of a system.
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
    """The differences between runs with the same seed. If seeds are not known, the runs are paired in order;
    empty if the systems then have different numbers of runs.
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
    """The words of a text in lower case; in a script without spaces, its characters."""
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
    """For each metric, the score of every system on the part, averaged over the system's runs."""
    scores_by_metric = {}
    for metric in comparison.metrics:
        values = []
        for system in comparison.systems:
            runs = comparison.statistics[test.name, system.name, metric.name]
            scores = [metric.value(run[part.rows].sum(axis=0).tolist()) for run in runs]
            values.append(sum(scores) / len(scores))
        scores_by_metric[metric.name] = values
    return scores_by_metric


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
