"""Training pairs of an epoch, and how often each is used: a function of the seed and the epoch."""

import math
from collections.abc import Sequence

import numpy as np

_WINDOWS = 3_000
"""The number of the random stream that orders blocks; smaller ones are those of the rows."""
_LEAST_BATCHES = 1_000


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
    """Parts of the training data that follow one another in its rows, each with a weight: corpora; or blocks,
    where an epoch is planned in several windows, one after the other.
    """

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int, windows: int = 1) -> None:
        """`sizes` are the pairs of each part, in order; `weights` their uses per epoch."""
        self._starts = np.cumsum([0, *sizes]).tolist()
        self._sizes, self._weights, self._seed = list(sizes), list(weights), seed
        self.windows = windows

    def parts(self, epoch: int, window: int = 0) -> list[range]:
        """The rows of a window; of one alone all."""
        if self.windows == 1:
            return [range(self._starts[-1])]
        return [range(self._starts[n], self._starts[n + 1]) for n in self._numbers(epoch, window)]

    def rows(self, epoch: int, window: int = 0) -> np.ndarray | None:
        """The rows of a window that are used, some of them several times, counted from the first of the
        window; None where each is used once.

        A weight of 2.5 uses each pair of a part twice and half of them a third time. Such fractions are
        consecutive windows of one permutation of the part, so two epochs with 0.5 use each pair once.
        """
        if all(weight == 1.0 for weight in self._weights):
            return None
        parts, start = [np.zeros(0, np.int64)], 0
        for number in self._numbers(epoch, window):
            size, weight = self._sizes[number], self._weights[number]
            whole = int(weight)
            parts += [np.arange(start, start + size)] * whole
            first, last = (int(uses * (weight - whole) * size) for uses in (epoch, epoch + 1))
            if last > first:
                order = np.random.default_rng([self._seed, number]).permutation(size)
                parts.append(start + order[np.arange(first, last) % size])
            start += size
        return np.concatenate(parts)

    def _numbers(self, epoch: int, window: int) -> list[int]:
        """The parts of a window, in order. Windows are about equal, and differ between epochs."""
        if self.windows == 1:
            return list(range(len(self._sizes)))
        uses = np.multiply(self._sizes, self._weights)
        order = np.random.default_rng([self._seed, epoch, 0, _WINDOWS]).permutation(len(uses))
        middle = np.cumsum(uses[order]) - uses[order] / 2
        window_of = (middle * self.windows / max(1.0, uses.sum())).astype(np.int64)
        return sorted(order[window_of == window].tolist())


def num_windows(pairs: float, tokens: float, window_pairs: int, batch_tokens: int) -> int:
    """The windows of an epoch with so many pairs and tokens: none has more than `window_pairs`, unless it
    would have less than 1,000 batches, which leaves many positions without a token.
    """
    return max(1, min(math.ceil(pairs / window_pairs), int(tokens / (_LEAST_BATCHES * batch_tokens))))
