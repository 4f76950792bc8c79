"""The training pairs with which another document begins."""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.preparation.raw_rows import RawPairs, RawRows
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

_FORMAT = 1  # raise it when a change alters what is written

_ROWS = 10_000


class DocumentStarts:
    """Finds the first pair of each document; in corpora without documents each pair is one."""

    def __init__(
        self,
        config: Config,
        pairs: EncodedPairs,
        sizes: Sequence[int],
        tokenizer: Tokenizer,
        raw_pairs: RawPairs,
    ) -> None:
        """`sizes` are the pairs of each corpus, in order."""
        self._config, self._sizes, self._raw_pairs = config, sizes, raw_pairs
        self._fingerprint, self._raw_rows = tokenizer.fingerprint, RawRows(config, pairs, tokenizer)

    def identity(self) -> list[object]:
        """Facts that change when the documents do, apart from the pairs: a file may get other boundaries of
        the same pairs.
        """
        entries = self._config.data.entries
        return [
            _FORMAT,
            self._fingerprint,
            [entry.identity() if entry.documents else None for entry in entries],
        ]

    def chunks(self) -> Iterator[Chunk]:
        """A source of one piece for the first pair of a document, of none for the others."""
        rows = self._are_first()
        while chunk := list(islice(rows, _ROWS)):
            yield Column.of([[1] * is_first for is_first in chunk]), Column.of([[]] * len(chunk))

    def _are_first(self) -> Iterator[bool]:
        starts = np.cumsum([0, *self._sizes]).tolist()
        for entry, start, stop in zip(self._config.data.entries, starts, starts[1:]):
            if not entry.documents:
                yield from repeat(True, stop - start)
                continue
            before = None
            raw = entry.in_documents(self._raw_pairs(entry), self._config.data.languages)
            for _, number in self._raw_rows.kept(entry, range(start, stop), raw):
                yield number != before
                before = number
