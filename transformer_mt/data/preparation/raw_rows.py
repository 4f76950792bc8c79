"""The raw pairs of training corpora, and the rows of prepared data that they became."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.kind import Corpus
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.pair import Pair

_ROWS = 10_000

T = TypeVar("T")


class RawRows:
    """Finds the rows that raw pairs became."""

    def __init__(self, config: Config, pairs: EncodedPairs, tokenizer: Tokenizer) -> None:
        self._config, self._pairs, self._tokenizer = config, pairs, tokenizer

    def kept(
        self, entry: Corpus, rows: range, raw: Iterable[tuple[Pair, T]]
    ) -> Iterator[tuple[Sequence[np.ndarray], T]]:
        """(its pieces, what stands with its raw pair) of each of the corpus's `rows`. InputError if there
        are fewer.
        """
        row, raw = rows.start, iter(raw)
        while chunk := list(islice(raw, _ROWS)):
            for ids, (_, fact) in zip(self._encoded([pair for pair, _ in chunk], entry), chunk):
                # Dropped pairs have no row: those kept follow one another in the same order.
                if row < rows.stop and all(map(np.array_equal, ids, self._ids(row))):
                    yield ids, fact
                    row += 1
        if row < rows.stop:
            raise InputError(f"{entry.title}: must not change after its preparation, but has changed")

    def _encoded(self, pairs: Sequence[Pair], entry: Corpus) -> Iterator[list[np.ndarray]]:
        data, control_id = self._config.data, self._tokenizer.control_id
        target = data.target_piece(data.languages_of(entry))
        before = (
            [control_id(piece) for piece in data.pieces_before(entry)],
            [] if target is None else [control_id(target)],
        )
        sources = self._tokenizer.encode_src([src.strip() for src, _ in pairs])
        targets = self._tokenizer.encode_tgt([tgt.strip() for _, tgt in pairs])
        for sides in zip(sources, targets):
            yield [np.array([*control, *ids], np.int32) for control, ids in zip(before, sides)]

    def _ids(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        return self._pairs.src(row), self._pairs.tgt(row)
