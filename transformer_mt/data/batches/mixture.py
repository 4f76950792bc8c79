"""Training pairs of an epoch, and how often each is used: a function of the seed and the epoch."""

from collections.abc import Sequence

import numpy as np


def effective_weights(
    weights: Sequence[float], sizes: Sequence[int], temperature: float, groups: Sequence[int] | None = None
) -> list[float]:
    """Uses of each pair per epoch, for each corpus: its weight times (N_max / N)^(1 - 1/T), N being the pairs
    after cleaning of its group, such as a direction of translation; by default each corpus is one. Empty
    corpora have weight 0.
    """
    groups = range(len(sizes)) if groups is None else groups
    totals = dict.fromkeys(groups, 0)
    for group, size in zip(groups, sizes):
        totals[group] += size
    largest = max(totals.values(), default=0)
    exponent = 1.0 - 1.0 / temperature
    return [
        weight * (largest / totals[group]) ** exponent if size else 0.0
        for weight, size, group in zip(weights, sizes, groups)
    ]


class Mixture:
    """Corpora that follow one another in the rows of the training data, each with a weight."""

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        """`sizes` are the pairs of each corpus, in order; `weights` their uses per epoch."""
        self._starts = np.cumsum([0, *sizes])
        self._sizes, self._weights, self._seed = list(sizes), list(weights), seed

    def rows(self, epoch: int) -> np.ndarray | None:
        """The rows an epoch uses, some of them several times; None where it uses each row once.

        A weight of 2.5 uses each pair of a corpus twice and half of them a third time. Such fractions are
        consecutive windows of one permutation of the corpus, so two epochs with 0.5 use each pair once.
        """
        if all(weight == 1.0 for weight in self._weights):
            return None
        parts = [np.zeros(0, np.int64)]
        for number, (start, size, weight) in enumerate(zip(self._starts, self._sizes, self._weights)):
            whole = int(weight)
            parts += [np.arange(start, start + size)] * whole
            first, last = (int(uses * (weight - whole) * size) for uses in (epoch, epoch + 1))
            if last > first:
                order = np.random.default_rng([self._seed, number]).permutation(size)
                parts.append(start + order[np.arange(first, last) % size])
        return np.concatenate(parts)
