"""The links of all training pairs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat, zip_longest
from pathlib import Path

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.kind import Corpus
from transformer_mt.data.alignment.aligner import aligned
from transformer_mt.data.alignment.pharaoh import read_links
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.preparation.raw_rows import RawPairs, RawRows
from transformer_mt.data.vocabulary.piece_words import PieceWords
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import digest
from transformer_mt.messages import say
from transformer_mt.text.pair import Pair

_FORMAT = 1  # raise it when a change alters what is written

_ROWS = 10_000

RowLinks = tuple[np.ndarray, np.ndarray]
"""(L,) positions of source pieces, and (L,) of the target pieces that belong to them."""
_NONE: RowLinks = np.zeros(0, np.int32), np.zeros(0, np.int32)


class TrainingLinks:
    """Finds the links of encoded training pairs; pairs of no translation have none."""

    def __init__(
        self,
        config: Config,
        pairs: EncodedPairs,
        sizes: Sequence[int],
        tokenizer: Tokenizer,
        raw_pairs: RawPairs,
    ) -> None:
        """`sizes` are the pairs of each corpus, in order."""
        self._files, self._raw_pairs = config.train.guided_alignment.files, raw_pairs
        self._pairs, self._tokenizer = pairs, tokenizer
        self._raw_rows = RawRows(config, pairs, tokenizer)
        starts = np.cumsum([0, *sizes]).tolist()
        rows = list(zip(config.data.entries, map(range, starts, starts[1:])))
        self._entries = [entry for entry, _ in rows if entry.objective == "translation"]
        self._translations = [of_entry for entry, of_entry in rows if entry.objective == "translation"]
        self._sides = PieceWords(tokenizer.src), PieceWords(tokenizer.tgt)

    def identity(self) -> list[object]:
        """Facts that change when the links do, apart from the pairs."""
        return [_FORMAT, self._tokenizer.fingerprint, *map(digest, self._files)]

    def chunks(self) -> Iterator[Chunk]:
        """For each pair its links as one more pair: source positions and target positions."""
        rows = self._given() if self._files else self._found()
        while chunk := list(islice(rows, _ROWS)):
            yield Column.of([src for src, _ in chunk]), Column.of([tgt for _, tgt in chunk])

    def _found(self) -> Iterator[RowLinks]:
        """Links by the aligner."""
        rows = [row for of_entry in self._translations for row in of_entry]
        say(f"aligning the words of {len(rows):,} pairs")
        words = (
            [side.words(ids, side.word_of(ids)) for side, ids in zip(self._sides, self._ids(row))]
            for row in rows
        )
        links = aligned((src, tgt) for src, tgt in words)
        number = 0
        for row in range(len(self._pairs)):
            if number < len(rows) and rows[number] == row:
                words_of = [side.word_of(ids) for side, ids in zip(self._sides, self._ids(row))]
                yield _of_pieces(next(links), words_of)
                number += 1
            else:
                yield _NONE

    def _given(self) -> Iterator[RowLinks]:
        """Links from a file for each corpus, a line for each of its pairs."""
        done = 0
        for entry, file, of_entry in zip(self._entries, self._files, self._translations, strict=True):
            yield from repeat(_NONE, of_entry.start - done)
            done = of_entry.stop
            lines = zip_longest(self._raw_pairs(entry), read_links(file))
            for ids, links in self._raw_rows.kept(entry, of_entry, _together(lines, file, entry)):
                words_of = [side.spaced_word_of(part) for side, part in zip(self._sides, ids)]
                if any(of.max(initial=-1) < column.max(initial=-1) for of, column in zip(words_of, links.T)):
                    raise InputError(
                        f"{file}: links must be of words of their pair, but those of "
                        f"{self._tokenizer.decode_tgt(ids[1].tolist())[:60]!r} are not"
                    )
                yield _of_pieces(links, words_of)
        yield from repeat(_NONE, len(self._pairs) - done)

    def _ids(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        return self._pairs.src(row), self._pairs.tgt(row)


def _together(
    lines: Iterable[tuple[Pair | None, np.ndarray | None]], file: Path, entry: Corpus
) -> Iterator[tuple[Pair, np.ndarray]]:
    """Pairs and their lines of links, of which there must be as many."""
    for pair, links in lines:
        if pair is None or links is None:
            raise InputError(
                f"{file}: must have a line for each pair of {entry.title}, but one of them ends first"
            )
        yield pair, links


def _of_pieces(links: np.ndarray, words_of: Sequence[np.ndarray]) -> RowLinks:
    """Links of words as links of all their pieces."""
    src, tgt = words_of
    of_pairs = [
        (s, t) for i, j in links.tolist() for t in np.flatnonzero(tgt == j) for s in np.flatnonzero(src == i)
    ]
    both = np.array(of_pairs, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]
