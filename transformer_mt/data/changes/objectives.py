"""Training rows per objective: noise, masks and labels, different ones in each epoch.

Noise and masks are a function of the seed, the epoch and the row, so that a resumed run sees the same.
Letters: R rows.
"""

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any

import numpy as np

from transformer_mt.companion import shown
from transformer_mt.config import Config
from transformer_mt.config.build_part import parts_of
from transformer_mt.config.data_section import NEXT
from transformer_mt.data.batches.batch import Batch, Lengths, Rows, Sides, make_encoder_batch
from transformer_mt.data.changes.change import Change, random_bits, uniforms
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.settings.corpus_keys import label_piece
from transformer_mt.settings.objectives import MASK, TextObjective, objective_class
from transformer_mt.settings.part import PartName
from transformer_mt.text.languages import count_unsegmented

_MASKED, _RANDOM = 0.8, 0.1
"""Shares of the predicted tokens that are hidden, and that are replaced by a random token."""


class Masking:
    """Chooses the tokens that are predicted, and what the model reads instead."""

    def __init__(self, tokenizer: Tokenizer, mask_id: int, share: float) -> None:
        """`share` of the tokens of a text is predicted, and at least one."""
        self._mask_id, self._share = mask_id, share
        control = {*tokenizer.control_ids.values(), *range(EOS + 1)}
        self._text_ids = np.array([i for i in range(tokenizer.src.vocab_size()) if i not in control])
        self._special = np.isin(np.arange(tokenizer.src.vocab_size()), [*control])

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(T,) ids -> (T,) ids that the model reads, and (T,) ids that it predicts (PAD for none). Special
        tokens are neither replaced nor predicted.
        """
        text = np.flatnonzero(~self._special[ids])
        count = min(len(text), max(1, round(self._share * len(text))))
        chosen = rng.choice(text, count, replace=False)
        targets = np.full_like(ids, PAD)
        targets[chosen] = ids[chosen]
        chance = rng.random(count)
        read = ids.copy()
        read[chosen[chance < _MASKED]] = self._mask_id
        replaced = chosen[(chance >= _MASKED) & (chance < _MASKED + _RANDOM)]
        read[replaced] = rng.choice(self._text_ids, len(replaced))
        return read, targets


_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "።")
"""Ends of sentences, as the last character of a token."""


class Denoising(TextObjective):
    """The target is a text, the source the same with noise (Lewis et al. 2020): sentences change places, and
    words are hidden in spans, each of which becomes one <mask>. Settings in `data.denoise`.
    """

    title = "denoising"
    model_kinds = ("transformer", "recurrent")
    is_plain_text = True
    control_tokens = (MASK,)

    def __init__(self, tokenizer: Tokenizer, config: Config) -> None:
        super().__init__(tokenizer, config)
        self._mask_id, self._config = tokenizer.control_id(MASK), config.data.denoise
        pieces = tokenizer.all_pieces_src
        # In scripts without spaces each token is a word.
        self._opens_word = np.array(
            [piece.startswith("▁") or count_unsegmented(piece) > 0 for piece in pieces]
        )
        self._ends_sentence = np.array([piece.endswith(_ENDS) for piece in pieces])

    def source(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        ids = self._permuted(ids, rng)
        words = self._words(ids)
        to_hide = int(self._config.mask * len(words) + rng.random())  # rounded up or down at random
        spans = self._spans(to_hide, len(words), rng)
        if not spans:
            return ids
        # Choose uniformly among all arrangements with at least one word between two spans.
        shown = len(words) - sum(spans)
        before = np.sort(rng.choice(shown + 1, len(spans), replace=False))
        parts, word = [], 0
        for span, begin in zip(spans, np.diff(before, prepend=0).tolist()):
            parts += [*words[word : word + begin], np.array([self._mask_id], ids.dtype)]
            word += begin + span
        return np.concatenate([*parts, *words[word:]])

    def _permuted(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        begins = np.flatnonzero(self._ends_sentence[ids[:-1]] & self._opens_word[ids[1:]]) + 1
        if not len(begins):
            return ids
        sentences = np.split(ids, begins)
        return np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])

    def _words(self, ids: np.ndarray) -> list[np.ndarray]:
        begins = np.flatnonzero(self._opens_word[ids[1:]]) + 1
        bounds = [0, *begins.tolist(), len(ids)]
        return [ids[begin:end] for begin, end in pairwise(bounds)]

    def _spans(self, to_hide: int, num_words: int, rng: np.random.Generator) -> Sequence[int]:
        """Sample span lengths that sum to `to_hide`, with length 0 only where the text does not grow."""
        spans: list[int] = []
        hidden = added = 0
        while hidden < to_hide:
            span = min(int(rng.poisson(self._config.span)), to_hide - hidden)
            if span == 0 and added >= hidden - len(spans):
                continue
            spans.append(span)
            hidden += span
            added += span == 0
        most = num_words - hidden + 1  # most spans with a word between each two; merge the rest
        for i, span in enumerate(spans[most:]):
            spans[i % most] += span
        return spans[:most]


_NOISE, _FOLLOWS, _PARTNER = 1_000, 1_001, 1_002
"""Numbers of the random streams of a row; smaller numbers are those of `data.augment`."""


class _ObjectiveRows(Change):
    """Base class; `parts` are the number of rows and the objective of each corpus, in order."""

    def __init__(
        self, before: Rows, config: Config, parts: Sequence[tuple[int, PartName]], tokenizer: Tokenizer
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
        self._made = [
            kind(self._tokenizer, config, **settings)
            for kind, settings in parts_of("objective", self._objectives, "objective")
        ]

    # `lengths` is inherited: it counts whole texts, and a source never has more tokens than its text.

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        src, tgt = self.before.rows(epoch, rows)
        for i, (row, corpus) in enumerate(zip(rows.tolist(), self._corpora(rows).tolist())):
            objective = self._made[corpus]
            if objective.translates:
                continue
            before = self._num_before(src[i])
            text = src[i][before:]
            source = objective.source(text, self._generator(epoch, row))
            if len(source) > len(text):
                raise InputError(
                    f"{shown(type(objective))}.source must give at most the {len(text)} tokens of the text, "
                    f"but gives {len(source)}"
                )
            src[i] = np.concatenate([src[i][:before], source])
        return src, tgt


class EncoderRows(_ObjectiveRows):
    """Rows of an encoder alone: `<s> text </s>`, or with the next-sentence task `<s> text </s> text </s>`.
    The model predicts some of the tokens (`masked_lm`), or a label at the first one (`classification`), or
    both (next sentence).
    """

    def __init__(self, before: Rows, config: Config, *corpora: Any) -> None:
        super().__init__(before, config, *corpora)
        settings, self._most = self._config.data.masked_lm, self._config.data.max_length - 2
        self._is_masked = np.array(
            [objective_class(objective).is_plain_text for objective in self._objectives]
        )
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
        """For each row, the ids that are read and the ids to predict at the same positions (PAD for none)."""
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
