"""Validation and test sets as they are scored: sentences with one or several references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from transformer_mt.corpora.corpus import EvaluationSentence, Languages
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus, read_held_out
from transformer_mt.text.lines import Pair


@dataclass(frozen=True)
class Block:
    """Consecutive pairs."""

    start: int
    """Row of the first."""
    pairs: list[Pair]


class BlockSample:
    """Blocks of consecutive pairs, evenly spaced over the stream."""

    def __init__(self, size: int = 32, most: int = 2000) -> None:
        """Blocks of `size` pairs, at most `most` of them at the end."""
        self._size, self._most = size, most
        self._stride = 1
        self._number = 0
        self._open: list[Pair] = []
        self._blocks: list[Block] = []

    def add(self, row: int, pair: Pair) -> None:
        """The next pair; rows count from 0."""
        if row % self._size == 0:
            self._close()
            self._number = row // self._size
        if self._number % self._stride == 0:
            self._open.append(pair)

    def _close(self) -> None:
        if self._open:
            self._blocks.append(Block(self._number * self._size, self._open))
            self._open = []
        if len(self._blocks) > self._most:
            del self._blocks[1::2]
            self._stride *= 2

    def blocks(self) -> list[Block]:
        """The blocks so far; the last one may be shorter."""
        return [*self._blocks, Block(self._number * self._size, self._open)] if self._open else self._blocks

    @property
    def stride(self) -> int:
        """One block in this many is in the sample."""
        return self._stride


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
