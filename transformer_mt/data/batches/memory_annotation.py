"""`data.memory`: training sources with the translation of a similar source, for other ones in each epoch.

Which rows get it is a function of the seed, the epoch and the row.
"""

import numpy as np

from transformer_mt.config import Config
from transformer_mt.config.parts.memory import MEMORY
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.batches.row_random import uniforms
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_CHOSEN = 3_000
"""Number of the random stream of a row; smaller ones are those of the other changes."""


class MemoryAnnotation:
    """Appends translations to sources. One that would be over-long stays as it is."""

    def __init__(self, config: Config, tokenizer: Tokenizer, similar: EncodedPairs) -> None:
        """`similar` has as source, for each row, the translation of the most similar other one, in pieces of
        sources; none where there is none.
        """
        self._piece, self._similar = tokenizer.control_id(MEMORY), similar
        self._share, self._seed = config.data.memory.share, config.seed
        self._most = config.data.max_length

    def __call__(self, epoch: int, rows: np.ndarray, chunk: Chunk) -> Chunk:
        """The columns of these rows as the epoch has them."""
        is_chosen = uniforms(self._seed, epoch, rows, _CHOSEN) < self._share
        chosen = np.flatnonzero(is_chosen & (self._similar.src_lengths[rows] > 1))
        if not len(chosen):
            return chunk
        src = [chunk[0].row(i) for i in range(len(rows))]
        for i in chosen.tolist():
            whole = np.array([*src[i], self._piece, *self._similar.src(int(rows[i]))], np.int32)
            if len(whole) < self._most:
                src[i] = whole
        return Column.of(src), chunk[1]
