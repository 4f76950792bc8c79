"""Validation and test sets: held out of the training corpora, or read; and what counts as a leak of a set.

Both depend on the normalised source alone: a sentence with other capitals, spacing or compatibility
characters is the same sentence.
"""

import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from transformer_mt.corpora.corpus import Corpus, EvaluationSentence, Languages
from transformer_mt.errors import InputError
from transformer_mt.settings.objectives import TRANSLATION
from transformer_mt.settings.part import PartName
from transformer_mt.settings.section import Positive, Section
from transformer_mt.text.hashes import splitmix64
from transformer_mt.text.lines import Pair

# Different salts: the validation and the test set are independent samples.
_SALTS = {"test": 0x9E3779B97F4A7C15, "valid": 0xBF58476D1CE4E5B9}


def _never(pair: Pair) -> bool:
    return False


def _salted(key: int, salt: int) -> float:
    """A number in [0, 1) that depends on the key and the salt."""
    return splitmix64((key + salt) % 2**64) / 2**64


class FromTrain(Section):
    """Pairs held out of the training corpora: those whose normalised source has a small hash. Adding data
    never moves a held-out sentence into training.
    """

    share: float = Field(0.01, gt=0.0, le=0.5)
    """The share of training sources to hold out, in each corpus."""
    max: Positive = 1000
    """Maximum number of pairs to score: the pairs with the smallest hashes from corpora that have no tag and
    are not synthetic.
    """


class FromTrainCorpus(Section):
    """A set held out of the training corpora."""

    KEYS: ClassVar[tuple[str, ...]] = ("from_train",)
    EXAMPLE: ClassVar[str] = "held out of training: {from_train: {share: 0.01}}"

    from_train: FromTrain
    """How many pairs."""

    is_held_out: ClassVar[bool] = True
    # Fixed: the set is scored without a tag, and never trained on.
    name: ClassVar[str | None] = None
    tag: ClassVar[str | None] = None
    synthetic: ClassVar[bool] = False
    filter: ClassVar[None] = None
    source_lang: ClassVar[str | None] = None
    target_lang: ClassVar[str | None] = None
    reverse: ClassVar[bool] = False
    weight: ClassVar[float] = 1.0
    several_references: ClassVar[bool] = False
    objective: ClassVar[PartName] = TRANSLATION
    language: ClassVar[str | None] = None
    title: ClassVar[str] = "held out"

    def describe(self) -> str:
        return f"{self.from_train.share:.2%} of the training corpora"

    def direction(self, languages: Languages) -> Languages:
        return languages

    def identity(self) -> dict[str, Any]:
        return self.model_dump()


class HeldOutSplit:
    """One set that is held out of the training corpora."""

    def __init__(self, name: str, settings: FromTrain, is_known: Callable[[Pair], bool] = _never) -> None:
        """`name` is valid or test. Pairs for which `is_known` is true are not scored: a model that this
        training builds on has seen them.
        """
        self.name, self._settings, self._salt, self._is_known = name, settings, _SALTS[name], is_known
        # The pairs with the smallest hashes so far: (-hash, row, pair), so that the largest comes first.
        self._heap: list[tuple[float, int, Pair]] = []
        self._there: set[float] = set()

    def takes(self, key: int) -> bool:
        """True if pairs with this source are held out."""
        return _salted(key, self._salt) < self._settings.share

    def add(self, key: int, row: int, pair: Pair) -> None:
        """A pair that may be scored; the first pair of a source counts."""
        value = _salted(key, self._salt)
        if value in self._there or self._is_known(pair):
            return
        if len(self._heap) < self._settings.max:
            heapq.heappush(self._heap, (-value, row, pair))
        elif value < -self._heap[0][0]:
            self._there.discard(-heapq.heappushpop(self._heap, (-value, row, pair))[0])
        else:
            return
        self._there.add(value)

    def pairs(self) -> list[Pair]:
        """The pairs to score, in the order of the corpora."""
        return [pair for _, _, pair in sorted(self._heap, key=lambda item: item[1])]


AnySet = Corpus | FromTrainCorpus
"""A validation or test set."""


def splits_of(
    valid: Iterable[AnySet], test: Iterable[AnySet], is_known: Callable[[Pair], bool] = _never
) -> list[HeldOutSplit]:
    """The sets that are held out of the training corpora, without known pairs. Test comes first: it gets the
    pairs that both sets would take.
    """
    return [
        HeldOutSplit(name, corpus.from_train, is_known)
        for name, corpora in (("test", test), ("valid", valid))
        for corpus in corpora
        if isinstance(corpus, FromTrainCorpus)
    ]


def held_out_file(folder: Path, name: str) -> Path:
    """File in which a run, or the cache, keeps the set."""
    return folder / f"held_out.{name}.jsonl"


def as_lines(rows: Iterable[Sequence[str]]) -> str:
    """Pairs, or sources with their references, as the text of a JSON lines file."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def rows_of(file: Path) -> list[list[str]]:
    """The sentences that `as_lines` wrote to the file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]


def read_held_out(folder: Path, name: str) -> Iterator[EvaluationSentence]:
    """The set that a run, or the cache, holds out of training. InputError if it is not there."""
    file = held_out_file(folder, name)
    if not file.exists():
        raise InputError(
            f"{file}: the {name} set held out of training is not there; train, or put the file "
            "there if the run was moved without it"
        )
    return ((src, (tgt,)) for src, tgt in rows_of(file))


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
    """At most `most` of the rows, evenly spaced from the first on. The first rows alone could all come from
    one corpus or one document, or be the shortest ones.
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
    """Source and target language; None for the languages of the model."""

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
