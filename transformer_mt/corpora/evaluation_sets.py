"""Validation and test sets as they are scored: sentences with one or several references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transformer_mt.corpora.corpus import EvaluationSentence, Languages
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus, read_held_out

T = TypeVar("T")


def evenly_spaced(rows: Sequence[T], most: int) -> list[T]:
    """At most so many of the rows, from the first on at equal distances: the first ones would be those of one
    corpus, of one document or the shortest ones.
    """
    count = min(most, len(rows))
    return [rows[i * len(rows) // count] for i in range(count)]


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with their references."""

    name: str
    """The name of its files in a run's folder."""
    corpus: str
    """The set in a few words."""
    sentences: list[EvaluationSentence]
    tag: str | None = None
    """Before each source."""
    languages: Languages | None = None
    """Source and target; None where the model's own are meant."""

    @property
    def title(self) -> str:
        """The set and its size."""
        return f"{self.corpus}, {len(self.sentences):,} sentences"

    @property
    def sources(self) -> list[str]:
        return [src for src, _ in self.sentences]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return [references for _, references in self.sentences]


def read_set(
    corpus: AnySet, languages: Languages, folder: Path | None, name: str
) -> Iterator[EvaluationSentence]:
    """The sentences of a validation or test set. One that was held out of the training corpora is read from
    the `folder` of the run; `name` is valid or test. `languages` are those of the config.
    """
    if isinstance(corpus, FromTrainCorpus):
        return read_held_out(folder or Path(), name)
    return corpus.sentences(languages)
