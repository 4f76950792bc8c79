"""`tokenizer.bpe_dropout`: words in other pieces than the usual ones, in each epoch again."""

import numpy as np

from transformer_mt.data.batches.encoded_pairs import Column
from transformer_mt.data.batches.rows import Lengths, Rows, Sides
from transformer_mt.data.changes.change import Change
from transformer_mt.data.changes.subword_dropout import MOST_WORDS, SubwordDropout
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_LEARNT = 16_000_000
"""Rows whose words are learnt beforehand, where they are."""


class BpeDropout(Change):
    """Segments all rows. A side that would be over-long keeps its usual pieces."""

    def __init__(
        self,
        before: Rows,
        tokenizer: Tokenizer,
        dropout: float,
        seed: int,
        max_length: int,
        text_changes: bool,
        most_words: int = MOST_WORDS,
    ) -> None:
        """`text_changes` where the rows before it bring new words in every epoch, or come in another order in
        each: then only the words of the unchanged corpus have other segmentations.
        """
        super().__init__(before)
        self._max_length = max_length
        # One per side, even with a shared vocabulary: the table of words is limited, and source words, which
        # come first, would fill it.
        sides = tokenizer.src, tokenizer.tgt
        self._sides = [SubwordDropout(side, dropout, seed, most_words) for side in sides]
        if text_changes:
            for number, side in enumerate(self._sides):
                for chunk in self.pairs.chunks(range(min(len(self.pairs), _LEARNT))):
                    side.learn(chunk[number])
                side.end_learning()

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        of_parts: tuple[list[np.ndarray], list[np.ndarray]] = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)]
        first = self.part(part).start
        for chunk in self.before.chunks(epoch, self.part(part)):
            rows = np.arange(first, first + len(chunk[0].lengths))
            for side, column in enumerate(chunk):
                usual = column.lengths
                lengths = self._sides[side].lengths(column, rows, 2 * epoch + side)
                lengths = np.where(lengths < self._max_length, lengths, usual)
                of_parts[side].append(lengths.astype(np.int32) + 1)
            first += len(rows)
        return np.concatenate(of_parts[0]), np.concatenate(of_parts[1])

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        return self._segmented(0, epoch, rows, src), self._segmented(1, epoch, rows, tgt)

    def _segmented(
        self, side: int, epoch: int, rows: np.ndarray, usual: list[np.ndarray]
    ) -> list[np.ndarray]:
        others = self._sides[side].segment(Column.of(usual), rows, 2 * epoch + side)
        return [other if len(other) < self._max_length else row for other, row in zip(others, usual)]
