"""Changes of training rows. Letters: R rows."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.batch import Lengths, Rows, Sides
from transformer_mt.data.batches.encoded_pairs import Chunk, Column
from transformer_mt.text.hashes import splitmix64
from transformer_mt.text.lines import Pair

# Large odd numbers without a pattern.
A, B, C = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def random_bits(seed: int, epoch: int, rows: np.ndarray, number: int) -> np.ndarray:
    """(R,) 64 random bits of each row; another `number` gives others."""
    key = np.uint64((seed * int(B) + epoch * int(C)) % 2**64)
    return splitmix64(splitmix64(rows.astype(np.uint64) * A + key) + np.uint64(number * int(B) % 2**64))


def uniforms(seed: int, epoch: int, rows: np.ndarray, number: int) -> np.ndarray:
    """(R,) from 0 to 1."""
    return random_bits(seed, epoch, rows, number) / 2.0**64


_BLOCK = 10_000


class PairsReport(Protocol):
    """Counts something in training pairs."""

    def add(self, row: int, pair: Pair) -> None: ...

    def notes(self) -> list[str]:
        """Sentences about it."""
        ...


class Change(Rows):
    """A change of the rows before it. This base class changes nothing.

    A change with a section `Settings` gets it as the argument `settings`, also in its classmethods.
    """

    def __init__(self, before: Rows) -> None:
        super().__init__(before.pairs, before.corpora, before.links)
        self.before = before

    @classmethod
    def control_tokens(cls, settings: Any = None) -> Sequence[str]:
        """The control tokens that the change writes into texts; they are added to the vocabulary."""
        return ()

    @classmethod
    def needs_links(cls, settings: Any = None) -> bool:
        """True if it reads word alignments of the pairs (`links`)."""
        return False

    @classmethod
    def conflicts(cls, config: Config, settings: Any = None) -> Iterator[str]:
        """A sentence for each key that cannot be combined with this change."""
        yield from ()

    @classmethod
    def check(cls, config: Config, settings: Any = None) -> None:
        """InputError before any work if the change cannot read a file or a library is missing."""

    @classmethod
    def inspection(cls, config: Config, settings: Any = None) -> PairsReport | None:
        """The counts that `inspect` should make of the training pairs for this change, if any."""
        return None

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        return self.before.lengths(epoch, part)

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        return self.before.rows(epoch, rows)

    def columns(self, epoch: int, rows: np.ndarray) -> tuple[Column, Column]:
        src, tgt = self.rows(epoch, rows)
        return Column.of(src), Column.of(tgt)

    def chunks(self, epoch: int, part: range) -> Iterator[Chunk]:
        for start in range(part.start, part.stop, _BLOCK):
            yield self.columns(epoch, np.arange(start, min(start + _BLOCK, part.stop)))


class ChangeOfSome(Change):
    """A change of the rows that it chooses in an epoch; the others stay as they are."""

    def chosen(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        """(R,) bool."""
        raise NotImplementedError

    def change(self, epoch: int, rows: np.ndarray, sides: Sides) -> None:
        """Replace the tokens of chosen rows in `sides`."""
        raise NotImplementedError

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        chosen = np.flatnonzero(self.chosen(epoch, rows)).tolist()
        if chosen:
            sides = [src[i] for i in chosen], [tgt[i] for i in chosen]
            self.change(epoch, rows[chosen], sides)
            for i, *pair in zip(chosen, *sides):
                src[i], tgt[i] = pair
        return src, tgt

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        first = self.part(part).start
        every = np.arange(first, self.part(part).stop)
        chosen = every[self.chosen(epoch, every)]
        lengths = self.before.lengths(epoch, part)
        lengths = lengths[0].copy(), lengths[1].copy()
        for start in range(0, len(chosen), _BLOCK):
            rows = chosen[start : start + _BLOCK]
            for side, ids in zip(lengths, self.rows(epoch, rows)):
                side[rows - first] = [len(row) + 1 for row in ids]
        return lengths
