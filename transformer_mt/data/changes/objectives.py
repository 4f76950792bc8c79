"""Training rows per objective: noise, masks and labels, different ones in each epoch.

Noise and masks are a function of the seed, the epoch and the row, so that a resumed run sees the same.
Letters: R rows.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from transformer_mt.config import Config
from transformer_mt.config.data_section import NEXT
from transformer_mt.data.batches.batch import Batch, make_encoder_batch
from transformer_mt.data.batches.rows import Lengths, Rows, Sides
from transformer_mt.data.changes.change import Change
from transformer_mt.data.changes.denoising import Denoising
from transformer_mt.data.changes.masking import Masking
from transformer_mt.data.changes.row_random import random_bits, uniforms
from transformer_mt.data.vocabulary.numbering import BOS, EOS, PAD
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.settings.objective import MASK, Objective, label_piece

_NOISE, _FOLLOWS, _PARTNER = 1_000, 1_001, 1_002
"""Numbers of the random streams of a row; smaller numbers are those of `data.augment`."""


class _ObjectiveRows(Change):
    """Base class; `parts` are the number of rows and the objective of each corpus, in order."""

    def __init__(
        self, before: Rows, config: Config, parts: Sequence[tuple[int, Objective]], tokenizer: Tokenizer
    ) -> None:
        super().__init__(before)
        self._config, self._tokenizer = config, tokenizer
        self._objectives = [objective for _, objective in parts]
        self._starts = np.cumsum([0, *(size for size, _ in parts)])
        self._control_ids = set(tokenizer.control_ids.values())

    def _corpora(self, rows: np.ndarray) -> np.ndarray:
        """(R,) the index of each row's corpus."""
        return np.searchsorted(self._starts, rows, "right") - 1

    def _generator(self, epoch: int, row: int) -> np.random.Generator:
        return np.random.default_rng([self._config.seed, epoch, row, _NOISE])

    def _num_before(self, ids: np.ndarray) -> int:
        """Count the control tokens at the beginning of a text: for its language, and a tag."""
        return sum(1 for _ in takewhile(self._control_ids.__contains__, ids))


class DecoderRows(_ObjectiveRows):
    """Rows of a model with a decoder, which writes the target: a translation, the text without its noise
    (`denoise`), or the text after an empty source (`causal_lm`).
    """

    def __init__(self, before: Rows, config: Config, *corpora: Any) -> None:
        super().__init__(before, config, *corpora)
        if "denoise" in self._objectives:
            mask_id = self._tokenizer.control_id(MASK)
            self._denoising = Denoising(self._tokenizer, mask_id, config.data.denoise)

    # `lengths` is inherited: it counts texts without noise, and noise never makes a text longer.

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        for i, (row, corpus) in enumerate(zip(rows.tolist(), self._corpora(rows).tolist())):
            objective = self._objectives[corpus]
            if objective == "translation":
                continue
            before = self._num_before(src[i])
            text = src[i][before:]
            left = self._denoising(text, self._generator(epoch, row)) if objective == "denoise" else text[:0]
            src[i] = np.concatenate([src[i][:before], left])
        return src, tgt


class EncoderRows(_ObjectiveRows):
    """Rows of an encoder alone: `<s> text </s>`, or with the next-sentence task `<s> text </s> text </s>`.
    Some pieces are predicted (`masked_lm`), or at the first one a label (`classification`, next sentence).
    """

    def __init__(self, before: Rows, config: Config, *corpora: Any) -> None:
        super().__init__(before, config, *corpora)
        settings, self._most = self._config.data.masked_lm, self._config.data.max_length - 2
        self._is_masked = np.array([objective == "masked_lm" for objective in self._objectives])
        self._has_next = settings.next_sentence and self._is_masked.any()
        if self._is_masked.any():
            self._masking = Masking(self._tokenizer, self._tokenizer.control_id(MASK), settings.mask)
        if self._has_next:
            self._next_ids = [self._tokenizer.control_id(label_piece(label)) for label in NEXT]

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        part = self.part(part)
        lengths = self.before.lengths(epoch, part)[0] + 1  # <s>
        if self._has_next and len(part):
            rows = np.arange(part.start, part.stop)
            first, last = self._corpora(rows[[0, -1]]).tolist()
            corpora = range(int(self._starts[first]), int(self._starts[last + 1]))  # candidates
            texts = self.before.lengths(epoch, corpora)[0] - 1
            partner, _ = self._partners(epoch, rows)
            both = np.minimum(lengths - 2 + texts[partner - corpora.start], self._most) + 3
            lengths = np.where(self._is_masked[self._corpora(rows)], both, lengths)
        return lengths, lengths

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        """The ids that are read of each row, and those that are predicted there: PAD where nothing is."""
        texts, labels = self.before.rows(epoch, rows)
        is_masked = self._is_masked[self._corpora(rows)]
        if self._has_next:
            partners, is_next = self._partners(epoch, rows)
            others = self.before.rows(epoch, partners)[0]
        read, predicted = [], []
        for i, row in enumerate(rows.tolist()):
            first = PAD
            text = np.array([BOS, *texts[i], EOS])
            if not is_masked[i]:
                first = int(labels[i][0])
            elif self._has_next:
                first = self._next_ids[int(is_next[i])]
                text = _joined(texts[i], others[i], self._most)
            targets = np.full_like(text, PAD)
            if is_masked[i]:
                text, targets = self._masking(text, self._generator(epoch, row))
            targets[0] = first
            read.append(text)
            predicted.append(targets)
        return read, predicted

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        return make_encoder_batch(*self.rows(epoch, rows))

    def _partners(self, epoch: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(R,) the row of each second text, and (R,) True where it follows the first text."""
        corpora = self._corpora(rows)
        starts, ends = self._starts[corpora], self._starts[corpora + 1]
        random = random_bits(self._config.seed, epoch, rows, _PARTNER) % (ends - starts).astype(np.uint64)
        is_chosen = uniforms(self._config.seed, epoch, rows, _FOLLOWS) < 0.5
        is_next = is_chosen & self.pairs.is_followed(rows) & (rows + 1 < ends)
        return np.where(is_next, rows + 1, starts + random.astype(np.int64)), is_next


def _joined(first: np.ndarray, second: np.ndarray, most: int) -> np.ndarray:
    """`<s> first </s> second </s>` with at most `most` text tokens: the longer text is truncated."""
    half = most // 2
    first_length = min(len(first), max(half, most - len(second)))
    first, second = first[:first_length], second[: most - first_length]
    return np.array([BOS, *first, EOS, *second, EOS])
