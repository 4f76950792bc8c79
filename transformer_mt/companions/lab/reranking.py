"""Choose among the candidates of each line by a metric: the best by itself, or the one most like the others.

The latter is minimum Bayes risk (Eikema and Aziz 2020) with any metric as its utility (Freitag et al. 2022).
"""

from collections.abc import Iterator, Sequence
from itertools import islice, permutations
from pathlib import Path
from typing import NamedTuple

from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import Metric
from transformer_mt.evaluation.set_evaluation import rows_of

_BLOCK = 100
"""Lines that are scored together: of 32 candidates each, 99,200 comparisons."""


class Line(NamedTuple):
    """A source and its different candidates."""

    source: str
    candidates: list[str]


class RankedLine(NamedTuple):
    """The candidate of a line that was chosen."""

    source: str
    translation: str
    score: float | None
    """None if the line has only one candidate, which is not scored."""


def read_candidates(files: Sequence[Path]) -> list[Line]:
    """The lines of the files that `translate --json` writes, one file for each system."""
    lines: list[Line] = []
    for i, file in enumerate(files):
        rows = list(rows_of(file))
        for number, row in enumerate(rows, start=1):
            several = row.get("n_best") or []
            several = several if isinstance(several, list) else [several]
            row["texts"] = [one.get("translation") if isinstance(one, dict) else None for one in several]
            if not all(isinstance(text, str) for text in (row.get("source"), *row["texts"])):
                raise InputError(f"{file}:{number}: is not JSON with source and translation")
        if i == 0:
            lines = [Line(row["source"], []) for row in rows]
        if [row["source"] for row in rows] != [line.source for line in lines]:
            raise InputError(f"{file}: must have the sources of {files[0]}, line by line")
        for line, row in zip(lines, rows):
            texts = dict.fromkeys([row["translation"], *row["texts"]])
            line.candidates.extend(text for text in texts if text not in line.candidates)
    return lines


def choices(lines: Sequence[Line], metric: Metric, by_risk: bool) -> Iterator[RankedLine]:
    """Yield the chosen candidate of each line. The score of a candidate is the metric's value without a
    reference or, if `by_risk`, the mean of its values with each other candidate as the reference.
    """
    for start in range(0, len(lines), _BLOCK):
        block = lines[start : start + _BLOCK]
        rows = [
            (source, text, others)
            for source, texts in block
            if len(texts) > 1
            for text, *others in permutations(texts, 2 if by_risk else 1)
        ]
        scores = map(metric.sentence_value, metric.statistics(*zip(*rows)).tolist()) if rows else iter(())
        for source, texts in block:
            if len(texts) == 1:
                yield RankedLine(source, texts[0], None)
                continue
            comparisons = len(texts) - 1 if by_risk else 1
            means = [sum(islice(scores, comparisons)) / comparisons for _ in texts]
            best = max(range(len(texts)), key=means.__getitem__)
            yield RankedLine(source, texts[best], means[best])
