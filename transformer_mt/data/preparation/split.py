"""The training corpora as blocks of text: each corpus is read once, and all later stages read blocks."""

import json
from collections.abc import Iterable, Iterator
from itertools import accumulate, islice, repeat

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.cleaning.cleaning_rules import repaired
from transformer_mt.data.preparation.row_tables import text_bytes, text_columns
from transformer_mt.data.preparation.store import Store
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.text.pair import Pair

BLOCK = 100_000
"""Rows; what dies loses at most the work on one."""


class Split:
    """The stage that divides the corpora; a task reads one, or one of its files."""

    what = "reading"

    def __init__(self, data: DataConfig, store: Store) -> None:
        self._data, self._store, self._block = data, store, BLOCK
        self.parts = [(i, part) for i, entry in enumerate(data.entries) for part in entry.parts()]
        """The number of a corpus, and a part of it."""
        self.sizes = [0] * len(self.parts)  # unknown until they are read

    def result(self, number: int) -> str:
        return f"text/{number:05d}.json"

    def run(self, number: int) -> None:
        corpus, entry = self.parts[number]
        is_part = sum(other == corpus for other, _ in self.parts) > 1  # of several files, some may be empty
        say(f"reading {entry.describe_access()} (training)")
        pairs = show_progress(entry.read(self._data.languages, is_part), "reading", unit="pairs")
        sources: Iterator[str] = repeat("")
        if has_pair_sources(entry, self._data):
            sources = (src for src, _ in entry.as_translations().read(self._data.languages, is_part))
        sizes, rows = list[int](), zip(pairs, sources)
        while block := list(islice(rows, self._block)):
            columns = {"src": [src for (src, _), _ in block], "tgt": [tgt for (_, tgt), _ in block]}
            if has_pair_sources(entry, self._data):
                columns["source"] = [source for _, source in block]
            self._store.write(_name(number, len(sizes)), text_bytes(columns))
            sizes.append(len(block))
        self._store.write(self.result(number), json.dumps(sizes).encode())


def _name(part: int, block: int) -> str:
    return f"text/{part:05d}-{block:05d}.arrow"


def has_pair_sources(entry: Corpus, data: DataConfig) -> bool:
    """True if a corpus is one side of pairs some of which are held out, by their source."""
    is_split = any(corpus.is_held_out for corpus in (*data.valid_sets, *data.test))
    return entry.is_text and entry.has_both_sides and is_split


class TextBlocks:
    """The blocks that `Split` wrote, in the order of the corpora."""

    def __init__(self, data: DataConfig, store: Store) -> None:
        self._data, self._store = data, store
        split = Split(data, store)
        of_parts = [json.loads(store.read(split.result(i))) for i in range(len(split.parts))]
        self._corpora = [corpus for (corpus, _), sizes in zip(split.parts, of_parts) for _ in sizes]
        self._names = [_name(i, n) for i, sizes in enumerate(of_parts) for n in range(len(sizes))]
        self.sizes: list[int] = [size for sizes in of_parts for size in sizes]
        """Rows of each block."""
        self.starts: list[int] = list(accumulate(self.sizes, initial=0))
        """Rows before each block, and the number of all."""
        self._last: tuple[int, list[Pair]] = -1, []
        """The block that was read last."""

    def __len__(self) -> int:
        return len(self.sizes)

    def corpus(self, block: int) -> int:
        """The number of its corpus."""
        return self._corpora[block]

    def entry(self, block: int) -> Corpus:
        """Its corpus."""
        return self._data.entries[self.corpus(block)]

    def pairs(self, block: int) -> list[Pair]:
        """The pairs of a block as training reads them, without white space around."""
        if self._last[0] != block:  # a corpus of one block is repaired once
            columns, entry = self._columns(block), self.entry(block)
            self._last = block, list(self._repaired(zip(columns["src"], columns["tgt"]), entry))
        return self._last[1]

    def pair_sources(self, block: int) -> Iterable[str]:
        """The source of the pair that each text of a block is a side of; "" for those that are no side."""
        if not has_pair_sources(entry := self.entry(block), self._data):
            return repeat("")
        sources = ((source, source) for source in self._columns(block)["source"])
        return (source for source, _ in self._repaired(sources, entry.as_translations()))

    def _columns(self, block: int) -> dict[str, list[str]]:
        return text_columns(self._store.read(self._names[block]))

    def _repaired(self, pairs: Iterable[Pair], entry: Corpus) -> Iterator[Pair]:
        whole = repaired(pairs, self._data.filter_of(entry), self._data.languages_of(entry))
        return ((src.strip(), tgt.strip()) for src, tgt in whole)
