"""The drop reasons that depend on other rows: duplicates, and targets of pairs that are held out."""

from collections.abc import Sequence

import numpy as np

from transformer_mt.corpora.held_out import HeldOutSplit
from transformer_mt.data.cleaning.drop_reasons import DUPLICATE, HELD_OUT, REASONS
from transformer_mt.data.preparation.clean import Clean
from transformer_mt.data.preparation.sections import Sections
from transformer_mt.data.preparation.split import TextBlocks
from transformer_mt.data.preparation.store import Store


class RowsByBlock:
    """Files of row numbers, a section for each block."""

    def __init__(self, text: TextBlocks, store: Store) -> None:
        self._sections = Sections(store, np.dtype(np.uint64), len(text))
        self._starts = np.array(text.starts, np.uint64)

    def write(self, name: str, rows: np.ndarray) -> None:
        """Write the numbers, which are in order."""
        self._sections.write(name, rows, np.searchsorted(rows, self._starts))

    def read(self, names: Sequence[str], block: int) -> np.ndarray:
        """The rows of a block in some files, counted from its first."""
        rows = np.concatenate([np.zeros(0, np.uint64), *self._sections.read(names, block)])
        return (rows - self._starts[block]).astype(np.int64)

    def read_all(self, name: str) -> np.ndarray:
        """The rows of all blocks."""
        return self._sections.read_all(name)


class HeldOutRows:
    """The rows of lone sides that are the target of a pair that is held out elsewhere."""

    NAME = "held_out_rows"

    def __init__(self, clean: Clean, text: TextBlocks, store: Store) -> None:
        self._clean, self._blocks, self._rows = clean, range(len(text)), RowsByBlock(text, store)

    def find(self, splits: list[HeldOutSplit]) -> np.ndarray:
        """The rows; the splits get the pairs that may be scored."""
        for block in self._blocks:
            for split, key, row, pair in self._clean.held_out(block):
                splits[split].add(key, row, pair)
        targets = np.unique(np.concatenate([self._clean.held_out_targets(block) for block in self._blocks]))
        lone = map(self._clean.lone, self._blocks)
        return np.concatenate([of["row"][np.isin(of["key"], targets)] for of in lone])

    def write(self, rows: np.ndarray) -> None:
        self._rows.write(self.NAME, rows)


class Duplicates:
    """The stage that finds rows with the key of an earlier row; a task looks at a share of all keys."""

    what = "duplicates"

    def __init__(self, clean: Clean, text: TextBlocks, store: Store) -> None:
        self._clean, self._text, self._rows = clean, text, RowsByBlock(text, store)
        self.sizes = [text.starts[-1] // clean.num_shares] * clean.num_shares  # about

    def result(self, number: int) -> str:
        return f"duplicates/{number:05d}"

    def run(self, number: int) -> None:
        table = self._clean.keys(number)
        table = table[~np.isin(table["row"], self._rows.read_all(HeldOutRows.NAME))]
        order = np.argsort(table["key"], kind="stable")  # stable: the first row of a key comes first
        repeated = table["key"][order][1:] == table["key"][order][:-1]
        self._rows.write(self.result(number), np.sort(table["row"][order[1:][repeated]]))


class Reasons:
    """The drop reasons of rows, all but those of their lengths, which encoding finds."""

    def __init__(self, clean: Clean, text: TextBlocks, store: Store, removes_duplicates: bool) -> None:
        self._clean, self._rows = clean, RowsByBlock(text, store)
        shares = range(clean.num_shares) if removes_duplicates else ()
        self._duplicates = [Duplicates(clean, text, store).result(share) for share in shares]

    def of(self, block: int) -> np.ndarray:
        """The reasons of a block's rows, as indices into REASONS."""
        reasons = self._clean.reasons(block)
        reasons[self._rows.read([HeldOutRows.NAME], block)] = REASONS.index(HELD_OUT)
        reasons[self._rows.read(self._duplicates, block)] = REASONS.index(DUPLICATE)
        return reasons
