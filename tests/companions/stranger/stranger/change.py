"""A change of training rows."""

import numpy as np
from pydantic import Field

from transformer_mt.data.changes.change import Change
from transformer_mt.settings.section import Section


class SwappedNeighbours(Change):
    """In some sources two neighbouring tokens change places. A pure function of seed, epoch and row."""

    class Settings(Section):
        """Keys of swap."""

        share: float = Field(0.1, ge=0.0, le=1.0)
        """Of the sources."""

    def __init__(self, rows, config, tokenizer, settings):
        super().__init__(rows)
        self.seed, self.share = config.seed, settings.share

    def rows(self, epoch, rows):
        sources, targets = self.before.rows(epoch, rows)
        return [self.swapped(epoch, *pair) for pair in zip(rows, sources)], targets

    def swapped(self, epoch, row, tokens):
        random = np.random.default_rng((self.seed, epoch, row))
        if random.random() >= self.share or len(tokens) < 2:
            return tokens
        at, tokens = random.integers(len(tokens) - 1), tokens.copy()
        tokens[[at, at + 1]] = tokens[[at + 1, at]]
        return tokens
