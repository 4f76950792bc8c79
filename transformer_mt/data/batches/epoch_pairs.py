"""The training pairs as each epoch has them: changed by `data.augment`, with terms in their sources
(`data.terms`), spelled by BPE-dropout.
"""

from collections.abc import Callable, Sequence

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.augmentation import Augmentation
from transformer_mt.data.batches.batching import Batch, make_batch
from transformer_mt.data.batches.encoded_pairs import NO_FACTS, Chunk, Column, EncodedPairs, PairFacts
from transformer_mt.data.batches.subword_dropout import SubwordDropout
from transformer_mt.data.batches.term_annotation import AlignedTerms, GlossaryTerms, TermAnnotation
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.terms.glossary_file import read_glossary

RowChange = Callable[[int, np.ndarray, Chunk], Chunk]
"""(epoch, rows, their columns) -> the columns as the epoch has them."""


def changing_pieces(
    config: Config,
    pairs: EncodedPairs,
    sizes: Sequence[int],
    tokenizer: Tokenizer,
    facts: PairFacts = NO_FACTS,
) -> "EpochPairs | None":
    """The pairs as the config asks for; None where they are the same in all epochs. `sizes` are those of the
    corpora.
    """
    dropout, seed, max_length = config.tokenizer.bpe_dropout, config.seed, config.data.max_length
    augmentation, sides = None, None
    if config.data.augment.is_on:
        augmentation = Augmentation(tokenizer, config.data.augment, seed, max_length)
    if dropout:
        # One per side, also with a shared vocabulary: its table of words is limited, and the sources, which
        # are read first, would fill it.
        sides = SubwordDropout(tokenizer.src, dropout, seed), SubwordDropout(tokenizer.tgt, dropout, seed)
    changes: list[RowChange] = [augmentation] if augmentation else []
    if config.data.terms.share:
        changes.append(_terms(config, pairs, sizes, tokenizer, facts))
    return EpochPairs(pairs, max_length, changes, sides) if changes or sides else None


def _terms(
    config: Config, pairs: EncodedPairs, sizes: Sequence[int], tokenizer: Tokenizer, facts: PairFacts
) -> TermAnnotation:
    settings, languages = config.data.terms, config.data.languages
    if settings.file is not None:
        terms: GlossaryTerms | AlignedTerms = GlossaryTerms(
            read_glossary(settings.file, languages), tokenizer
        )
    else:
        assert facts.links is not None
        terms = AlignedTerms(pairs, facts.links, tokenizer, languages[1])
    return TermAnnotation(config, sizes, tokenizer, terms)


class EpochPairs:
    """Pairs whose pieces change from epoch to epoch; a side that dropout would make over-long keeps its usual
    pieces.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        max_length: int,
        changes: Sequence[RowChange],
        sides: tuple[SubwordDropout, SubwordDropout] | None,
    ) -> None:
        """`changes` are made one after the other; `sides` segment the sources and the targets."""
        self._pairs, self._max_length = pairs, max_length
        self._changes, self._sides = changes, sides
        if sides and changes:
            # Only the words of the unchanged corpus have other segmentations: changes bring new words in
            # every epoch.
            for number, side in enumerate(sides):
                for column in pairs.columns(number):
                    side.learn(column)
                side.end_learning()

    def lengths(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(R,) of the sources and of the targets of all rows, the EOS counted that batches add."""
        parts: tuple[list[np.ndarray], list[np.ndarray]] = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        first = 0
        for chunk in zip(self._pairs.columns(0), self._pairs.columns(1)):
            rows = np.arange(first, first + len(chunk[0].lengths))
            for side, column in enumerate(self._changed(epoch, rows, chunk)):
                parts[side].append(self._lengths(side, epoch, rows, column).astype(np.int32) + 1)
            first += len(rows)
        return np.concatenate(parts[0]), np.concatenate(parts[1])

    def rows(self, epoch: int, rows: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Piece ids of the sources and of the targets of some rows."""
        src, tgt = [self._pairs.src(i) for i in rows], [self._pairs.tgt(i) for i in rows]
        columns = self._changed(epoch, rows, (Column.of(src), Column.of(tgt)))
        return self._segmented(0, epoch, rows, columns[0]), self._segmented(1, epoch, rows, columns[1])

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        """The batch of these rows."""
        return make_batch(*self.rows(epoch, rows))

    def _changed(self, epoch: int, rows: np.ndarray, chunk: Chunk) -> Chunk:
        for change in self._changes:
            chunk = change(epoch, rows, chunk)
        return chunk

    def _lengths(self, side: int, epoch: int, rows: np.ndarray, column: Column) -> np.ndarray:
        usual = column.lengths
        if self._sides is None:
            return usual
        lengths = self._sides[side].lengths(column, rows, 2 * epoch + side)
        return np.where(lengths < self._max_length, lengths, usual)

    def _segmented(self, side: int, epoch: int, rows: np.ndarray, column: Column) -> list[np.ndarray]:
        if self._sides is None:
            return [column.row(i) for i in range(len(rows))]
        others = self._sides[side].segment(column, rows, 2 * epoch + side)
        fits = self._max_length
        return [other if len(other) < fits else column.row(i) for i, other in enumerate(others)]
