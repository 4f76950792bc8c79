"""Significance of a difference between two systems.

All statistics are of the whole test set: a sample's score is computed from the sums over its sentences.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transformer_mt.evaluation.metrics import Metric, Statistics

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
    """95 % of the mean over the runs would be in here, with other sentences and other seeds.

    `values` are [runs, samples] of the bootstrap.
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

    `values` are [runs, samples] of both. The difference varies with the sentences, which are resampled, the
    same for all runs, and with the seeds, of which there are too few to resample: their part is Student's t
    with the deviation of both systems' runs.
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
    """[samples]: by how much the mean over the seeds of one system, or the difference of two, would change
    with other seeds (Student's t with pooled variance); 0 where each has one run.
    """
    freedom = sum(len(runs) - 1 for runs in systems)
    if not freedom:
        return np.zeros(samples)
    variance = sum(((runs - runs.mean()) ** 2).sum() for runs in systems) / freedom
    error = np.sqrt(variance * sum(1 / len(runs) for runs in systems))
    return np.random.default_rng([_SEED, 1]).standard_t(freedom, samples) * error


def _share_at_least(variation: Values, difference: float, magnitude: Values) -> float:
    """The share of samples with a difference at least as large, the real one counted with them."""
    least = abs(difference) - _ROUNDING * max(1.0, float(np.abs(magnitude).max()))
    return float((np.sum(np.abs(variation) >= least) + 1) / (len(variation) + 1))
