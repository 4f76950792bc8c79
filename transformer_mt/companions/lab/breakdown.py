"""Differences between systems: their scores on parts of a test set, lengths, and what looks wrong."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from transformer_mt.companions.lab.comparison import Comparison
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.text.sentences import find_words
from transformer_mt.translation.stages.text_stages import text_flags

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
