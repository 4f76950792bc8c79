"""Denoising (Lewis et al. 2020, section 2.2): the noise of which a model restores the text."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from transformer_mt.config.pretraining import DenoiseConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.unsegmented import count_unsegmented

_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "።")
"""Ends of sentences, as the last character of a piece."""


class Denoising:
    """Text infilling and sentence permutation of piece ids.

    Words are hidden in spans, each of which becomes one <mask>; a text is never longer than before.
    """

    def __init__(self, tokenizer: Tokenizer, mask_id: int, config: DenoiseConfig) -> None:
        self._mask_id, self._config = mask_id, config
        pieces = tokenizer.all_pieces_src
        # In scripts without spaces each piece is a word.
        self._opens_word = np.array(
            [piece.startswith("▁") or count_unsegmented(piece) > 0 for piece in pieces]
        )
        self._ends_sentence = np.array([piece.endswith(_ENDS) for piece in pieces])

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The text (T,) with noise, at most T long."""
        return self._infilled(self._permuted(ids, rng), rng)

    def _permuted(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        begins = np.flatnonzero(self._ends_sentence[ids[:-1]] & self._opens_word[ids[1:]]) + 1
        if not len(begins):
            return ids
        sentences = np.split(ids, begins)
        return np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])

    def _infilled(self, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
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
