"""Texts of a corpus that follow one another: a blank line ends a document (Devlin et al. 2019)."""

from collections.abc import Iterable, Iterator

import numpy as np

from transformer_mt.config import Config
from transformer_mt.corpora.kind import Corpus
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.preparation.raw_rows import RawRows
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.pair import Pair


class Neighbours:
    """Finds for each encoded text whether the next row is the next text of its file: neither a blank line nor
    a text that was dropped stands between them.
    """

    def __init__(
        self,
        config: Config,
        pairs: EncodedPairs,
        tokenizer: Tokenizer,
        corpora: Iterable[tuple[Corpus, range, Iterable[Pair]]],
    ) -> None:
        """`corpora` are each corpus, its rows, and its texts as they are read."""
        self._rows, self._corpora = RawRows(config, pairs, tokenizer), corpora

    def identity(self) -> list[object]:
        return ["neighbours", 1]

    def chunks(self) -> Iterator[Chunk]:
        """For each row a 1 where the next row follows, else nothing."""
        for corpus, rows, texts in self._corpora:
            if corpus.objective != "masked_lm":
                none = Column(np.zeros(len(rows) + 1, np.int32), np.zeros(0, np.int32))
                yield none, none
                continue
            numbered = ((pair, number) for number, pair in enumerate(texts))
            numbers = np.fromiter((n for _, n in self._rows.kept(corpus, rows, numbered)), np.int64)
            is_followed = np.append(np.diff(numbers) == 1, False)[: len(rows)].astype(np.int32)
            ones = Column(
                np.concatenate([[0], np.cumsum(is_followed)]).astype(np.int32), is_followed[is_followed > 0]
            )
            yield ones, ones
