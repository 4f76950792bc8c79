"""Validation and test sets: sentences with one or several references."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.config import DataConfig
from transformer_mt.config.corpus import FilesCorpus, FromTrainCorpus, Readable, SacrebleuCorpus
from transformer_mt.data.corpora.corpus import describe, name_of, read_aligned, read_corpus
from transformer_mt.data.corpora.held_out import held_out_file, rows_of
from transformer_mt.data.corpora.sacrebleu_sets import read_sacrebleu
from transformer_mt.errors import InputError
from transformer_mt.text.pair import Pair

EvaluationSentence = tuple[str, tuple[str, ...]]
"""A source and its references."""


@dataclass(frozen=True)
class EvaluationSet:
    """Sentences with their references."""

    name: str
    """Of its files in a run's folder."""
    corpus: str
    """The set in a few words."""
    sentences: list[EvaluationSentence]
    tag: str | None = None
    """Before each source."""
    languages: tuple[str, str] | None = None
    """Source and target; None where the model's own are meant."""

    @property
    def sources(self) -> list[str]:
        return [src for src, _ in self.sentences]

    @property
    def references(self) -> list[tuple[str, ...]]:
        return [references for _, references in self.sentences]


def read_set(
    corpus: Readable | FromTrainCorpus, data: DataConfig, run: Path | None, name: str
) -> Iterator[EvaluationSentence]:
    """The sentences of a validation or test set; one that was held out of the training corpora is read from
    the run's folder. `name` is valid or test.
    """
    if isinstance(corpus, FromTrainCorpus):
        return _each_alone(_read_held_out(run or Path(), name))
    if isinstance(corpus, FilesCorpus) and len(corpus.targets) > 1:
        return read_references(corpus.source, corpus.targets)
    if not corpus.several_references:
        return _each_alone(read_corpus(corpus, data))
    if isinstance(corpus, SacrebleuCorpus):
        return read_sacrebleu(corpus.sacrebleu, list(data.languages_of(corpus)))
    return _by_source(read_corpus(corpus, data))


def read_references(source: str, references: Sequence[str]) -> Iterator[EvaluationSentence]:
    """The sentences of line-aligned files. A blank line is no reference where another file has one."""
    for src, *targets in read_aligned([source, *references]):
        yield src, tuple(filter(str.strip, targets)) or tuple(targets[:1])


def describe_set(corpus: Readable | FromTrainCorpus) -> str:
    """The set in a few words."""
    if isinstance(corpus, FromTrainCorpus):
        return f"{corpus.from_train.share:.2%} of the training corpora"
    return describe(corpus)


def name_of_set(corpus: Readable | FromTrainCorpus) -> str:
    """The name of the set in tables."""
    return "held out" if isinstance(corpus, FromTrainCorpus) else name_of(corpus)


def _read_held_out(run: Path, name: str) -> Iterator[Pair]:
    file = held_out_file(run, name)
    if not file.exists():
        raise InputError(
            f"{file}: must hold the {name} set held out of training, but is not there; train first"
        )
    return ((src, tgt) for src, tgt in rows_of(file))


def _each_alone(pairs: Iterable[Pair]) -> Iterator[EvaluationSentence]:
    return ((src, (tgt,)) for src, tgt in pairs)


def _by_source(pairs: Iterable[Pair]) -> Iterator[EvaluationSentence]:
    """Each source once, where it first stands."""
    references: dict[str, list[str]] = {}
    for src, tgt in pairs:
        references.setdefault(src, []).append(tgt)
    return (
        (src, tuple(filter(str.strip, targets)) or tuple(targets[:1])) for src, targets in references.items()
    )
