"""Masked language modelling (Devlin et al. 2019, section 3.1): pieces that are hidden and predicted."""

import numpy as np

from transformer_mt.data.vocabulary.numbering import EOS, PAD
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_MASKED, _RANDOM = 0.8, 0.1
"""Shares of the predicted pieces that are hidden, and that are replaced by a random piece."""


class Masking:
    """Chooses the pieces that are predicted, and what the model reads instead."""

    def __init__(self, tokenizer: Tokenizer, mask_id: int, share: float) -> None:
        """`share` of the pieces of a text is predicted, and at least one."""
        self._mask_id, self._share = mask_id, share
        control = {*tokenizer.control_ids.values(), *range(EOS + 1)}
        self._text_ids = np.array([i for i in range(tokenizer.src.vocab_size()) if i not in control])
        self._special = np.isin(np.arange(tokenizer.src.vocab_size()), [*control])

    def __call__(self, ids: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """(T,) -> (T,) what is read, and (T,) what is predicted: PAD where nothing is. Special pieces are
        read as they are.
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
