"""The links of all training pairs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, repeat, tee, zip_longest
from pathlib import Path

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.kind import Corpus
from transformer_mt.data.alignment.aligner import aligned
from transformer_mt.data.alignment.pharaoh import read_links
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.cleaning.rules import repaired
from transformer_mt.data.preparation.raw_rows import RawRows
from transformer_mt.data.vocabulary.piece_words import PieceWords
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import digest
from transformer_mt.messages import say
from transformer_mt.settings.filter import FilterConfig
from transformer_mt.text.pair import Pair

_FORMAT = 2  # raise it when a change alters what is written

_ROWS = 10_000

RowLinks = tuple[np.ndarray, np.ndarray]
"""(L,) positions of source pieces, and (L,) of the target pieces that belong to them."""
_NONE: RowLinks = np.zeros(0, np.int32), np.zeros(0, np.int32)


class TrainingLinks:
    """Finds the links of encoded training pairs; pairs of no translation have none."""

    def __init__(
        self, config: Config, pairs: EncodedPairs, sizes: Sequence[int], tokenizer: Tokenizer
    ) -> None:
        """`sizes` are the pairs of each corpus, in order."""
        self._files, self._data = config.train.guided_alignment.files, config.data
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
            written, read = tee(entry.read(self._data.languages))
            chosen, languages = self._data.filter_of(entry), self._data.languages_of(entry)
            pairs = zip(repaired(read, chosen, languages), written)
            lines = _together(zip_longest(pairs, read_links(file)), file, entry)
            for ids, (links, texts) in self._raw_rows.kept(entry, of_entry, lines):
                links = links[:, ::-1] if entry.reverse else links
                words_of = [self._word_of(*side) for side in zip((0, 1), ids, texts)]
                counts = [len(text.split()) for text in texts]
                if (links >= counts).any() or any(of is None for of in words_of):
                    raise InputError(_refusal(file, texts, chosen))
                yield _of_pieces(links, [of for of in words_of if of is not None])
        yield from repeat(_NONE, len(self._pairs) - done)

    def _word_of(self, side: int, ids: np.ndarray, text: str) -> np.ndarray | None:
        """(T,) the number of each piece's word in the text as its file has it, where white space divides
        words. None if a filter has changed the words into others.
        """
        pieces, words = self._sides[side], text.split()
        word_of = pieces.spaced_word_of(ids)
        if word_of.max(initial=-1) + 1 == len(words):
            return word_of
        # A filter joins words; a normalisation divides them, or removes one of invisible characters.
        encode = self._tokenizer.encode_tgt if side else self._tokenizer.encode_src
        spelt = [pieces.spelling(np.array(alone, np.int32)) for alone in encode(words)]
        lengths = [len(pieces.spelling(ids[i : i + 1])) for i in range(len(ids))]
        if "".join(spelt) != pieces.spelling(ids):
            return None
        starts = np.cumsum(lengths) - lengths
        of_start = np.searchsorted(np.cumsum([len(word) for word in spelt]), starts, "right")
        return np.where(word_of >= 0, of_start, -1)

    def _ids(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        return self._pairs.src(row), self._pairs.tgt(row)


def _together(
    lines: Iterable[tuple[tuple[Pair, Pair] | None, np.ndarray | None]], file: Path, entry: Corpus
) -> Iterator[tuple[Pair, tuple[np.ndarray, Pair]]]:
    """Pairs as they are trained on, each with its line of links, of which there must be as many, and with its
    text as its file has it.
    """
    for texts, links in lines:
        if texts is None or links is None:
            raise InputError(
                f"{file}: must have a line for each pair of {entry.title}, but one of them ends first"
            )
        yield texts[0], (links, texts[1])


def _refusal(file: Path, texts: Pair, chosen: FilterConfig) -> str:
    keys = {"encoding: repair": chosen.encoding == "repair", "detokenize": bool(chosen.detokenize)}
    changing = " and ".join(key for key, is_on in keys.items() if is_on)
    return f"{file}: links must be of words of their pair, but those of {texts[1][:60]!r} are not" + (
        f"; its filter changes words ({changing}): leave that out, or align the changed text"
        if changing
        else ""
    )


def _of_pieces(links: np.ndarray, words_of: Sequence[np.ndarray]) -> RowLinks:
    """Links of words as links of all their pieces."""
    src, tgt = words_of
    of_pairs = [
        (s, t) for i, j in links.tolist() for t in np.flatnonzero(tgt == j) for s in np.flatnonzero(src == i)
    ]
    both = np.array(of_pairs, np.int32).reshape(-1, 2)
    return both[:, 0], both[:, 1]
