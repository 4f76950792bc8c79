"""For each training pair the translation of the most similar source."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.files import digest
from transformer_mt.memories.memory import Memory, read_memory
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.text.pair import Pair

_FORMAT = 1  # raise it when a change alters what is written

_ROWS = 10_000


class SimilarPairs:
    """Finds similar pairs for the pairs of all corpora in the config's direction; others have none."""

    def __init__(
        self, config: Config, pairs: EncodedPairs, sizes: Sequence[int], tokenizer: Tokenizer
    ) -> None:
        """`sizes` are the pairs of each corpus, in order."""
        self._config, self._pairs, self._tokenizer = config, pairs, tokenizer
        data, starts = config.data, np.cumsum([0, *sizes]).tolist()
        self._rows = [
            row
            for entry, start, stop in zip(data.entries, starts, starts[1:])
            if entry.objective == "translation" and data.languages_of(entry) == data.languages
            for row in range(start, stop)
        ]
        self._control = {*tokenizer.control_ids.values()}

    def identity(self) -> list[object]:
        """Facts that change when what is found does, apart from the pairs."""
        settings = self._config.data.memory
        file = [] if settings.file is None else [digest(Path(settings.file))]
        return [_FORMAT, self._tokenizer.fingerprint, settings.threshold, *file]

    def chunks(self) -> Iterator[Chunk]:
        """For each pair the pieces of the translation as one more source, with an empty target."""
        settings, languages = self._config.data.memory, self._config.data.languages
        if settings.file is None:
            memory = Memory(map(self._texts, self._rows), languages)
        else:
            memory = read_memory(settings.file, languages)
        say(f"looking for pairs similar to {len(self._rows):,}, among {len(memory):,}")
        found = self._found(memory, settings.threshold)
        while chunk := list(islice(found, _ROWS)):
            ids = self._tokenizer.encode_src(chunk)
            yield Column.of(ids), Column.of([[]] * len(ids))

    def _found(self, memory: Memory, threshold: float) -> Iterator[str]:
        """For each pair the translation of a similar one; an empty text where there is none."""
        wanted = set(self._rows)
        for row in show_progress(range(len(self._pairs)), "looking", unit="pairs"):
            similar = memory.similar(self._texts(row)[0], threshold) if row in wanted else None
            yield similar.target if similar else ""

    def _texts(self, row: int) -> Pair:
        src = [i for i in self._pairs.src(row).tolist() if i not in self._control]
        tgt = [i for i in self._pairs.tgt(row).tolist() if i not in self._control]
        return self._tokenizer.src.decode(src), self._tokenizer.tgt.decode(tgt)
