"""The drop reason of each row of a corpus, found in one pass and kept in a file: memory does not grow with
the rows.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Literal

import numpy as np

from transformer_mt.corpora.held_out import HeldOutSplit
from transformer_mt.data.cleaning.drop_reasons import DUPLICATE, EMPTY, HELD_OUT, KEPT, LEAKED, REASONS
from transformer_mt.data.cleaning.rules import Rule
from transformer_mt.text.hashes import pair_key, sentence_key
from transformer_mt.text.pair import Pair

# Keys are sorted share by share, each by itself in memory: of a billion pairs, 250 MB at a time.
_SHARES = 64
_ROWS = 2**16

_NUMBERS = {reason: number for number, reason in enumerate(REASONS)}

_KEY = np.dtype([("key", np.uint64), ("row", np.uint64)])


@dataclass(frozen=True)
class TrainingCorpus:
    """The pairs of one training corpus, and what is done with them."""

    pairs: Iterable[Pair]
    rules: Sequence[Rule] = ()
    may_be_scored: bool = True
    """Whether its held-out pairs may be in the set that is scored."""
    target_lang: str = ""
    """The target language, where there are several."""
    held_out_targets: Set[int] = frozenset()
    """Keys of targets that its pairs must not have."""
    lone_side: Literal[0, 1] | None = None
    """The side that may be the target of a pair whose source is elsewhere: of plain text, or of pairs that a
    model wrote a side of. Targets that other corpora hold out are held out here, too.
    """
    pair_sources: Iterable[str] | None = None
    """The source of each row's pair, if the rows are one side of pairs: a pair is held out by its source."""


_REASONS = "reasons.u8"
_LONE = "lone-sides"
"""Keys of texts that may be held out as the target of a pair that is read later."""


class ReasonFile:
    """The drop reason of each row, in a folder; complete after `finish`."""

    def __init__(
        self,
        folder: Path,
        held_out: set[int],
        remove_duplicates: bool | Literal["near"],
        splits: Sequence[HeldOutSplit] = (),
        left_out: frozenset[int] = frozenset(),
        has_lone_sides: bool = False,
    ) -> None:
        """`held_out` are the source keys of the validation and test sets; `splits` take theirs from the
        rows. Of what they do not take, sources with a key among those `left_out` are dropped.
        `has_lone_sides`: at least one corpus has one.
        """
        self._left_out = left_out
        self._folder, self._held_out, self._remove_duplicates = folder, held_out, remove_duplicates
        self._splits = splits
        self._has_lone_sides, self._held_out_targets = has_lone_sides, set[int]()
        self.sizes: list[int] = []
        """Rows of each corpus, after `walk`."""
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def reasons_file(self) -> Path:
        return self._folder / _REASONS

    def walk(self, corpora: Iterable[TrainingCorpus]) -> Iterator[tuple[int, Pair]]:
        """Write the drop reason of each row and yield (row, stripped pair) of those kept so far: duplicates
        are known only at the end.
        """
        shares = [(self._folder / f"keys-{i}").open("wb") for i in range(_SHARES)]
        lone_sides = (self._folder / _LONE).open("wb")
        keys, rows = np.empty(_ROWS, np.uint64), np.empty(_ROWS, np.uint64)
        reasons = bytearray()
        is_near = self._remove_duplicates == "near"
        waiting = 0

        def write_keys() -> None:
            share = keys[:waiting] % np.uint64(_SHARES)
            for i, file in enumerate(shares):
                is_in_share = share == i
                table = np.empty(int(is_in_share.sum()), _KEY)
                table["key"], table["row"] = keys[:waiting][is_in_share], rows[:waiting][is_in_share]
                file.write(table.tobytes())

        try:
            with (self._folder / "reasons.tmp").open("wb") as file:
                for row, (corpus, src, tgt, source) in enumerate(self._rows(corpora)):
                    src, tgt = src.strip(), tgt.strip()
                    reason = self._reason(row, (src, tgt), corpus, source)
                    reasons.append(_NUMBERS[reason])
                    if reason == KEPT and self._splits and corpus.lone_side is not None:
                        key = sentence_key((src, tgt)[corpus.lone_side])
                        lone_sides.write(np.array((key, row), _KEY).tobytes())
                    if reason == KEPT:
                        # The same target in two languages, such as Norwegian's two, is two pairs.
                        target = f"{corpus.target_lang}\n{tgt}" if corpus.target_lang else tgt
                        keys[waiting], rows[waiting] = pair_key((src, target), is_near), row
                        waiting += 1
                        yield row, (src, tgt)
                    if len(reasons) == _ROWS:
                        write_keys()
                        file.write(reasons)
                        reasons.clear()
                        waiting = 0
                write_keys()
                file.write(reasons)
        finally:
            for key_file in (*shares, lone_sides):
                key_file.close()

    def _rows(self, corpora: Iterable[TrainingCorpus]) -> Iterator[tuple[TrainingCorpus, str, str, str]]:
        self.sizes.clear()
        for corpus in corpora:
            size = 0
            for (src, tgt), source in zip(corpus.pairs, corpus.pair_sources or repeat("")):
                size += 1
                yield corpus, src, tgt, source
            self.sizes.append(size)

    def _reason(self, row: int, pair: Pair, corpus: TrainingCorpus, pair_source: str) -> str:
        if not pair[0] or not pair[1]:
            return EMPTY
        if self._held_out or self._splits or self._left_out:
            key = sentence_key(pair[0])
            if key in self._held_out:
                return LEAKED
            if corpus.held_out_targets and sentence_key(pair[1]) in corpus.held_out_targets:
                return LEAKED
            source_key = sentence_key(pair_source) if pair_source else key
            for split in self._splits:
                # Before the rules: a filter must not change the sets that compare it with another.
                if split.takes(source_key):
                    if corpus.may_be_scored:
                        split.add(source_key, row, pair)
                    if self._has_lone_sides and corpus.lone_side is None:
                        self._held_out_targets.add(sentence_key(pair[1]))
                    return HELD_OUT
            if key in self._left_out:
                return LEAKED
        for rule in corpus.rules:
            if rule.drops(*pair):
                return rule.reason
        return KEPT

    def finish(self) -> np.ndarray:
        """The drop reason of each row as an index into REASONS, duplicates included; memory-mapped."""
        temporary = self._folder / "reasons.tmp"
        reasons = _map(temporary, "r+")
        lone = self._folder / _LONE
        targets = np.fromiter(self._held_out_targets, np.uint64)
        with lone.open("rb") as file:  # only now all targets that are held out are known
            while len(table := np.fromfile(file, _KEY, _ROWS)):
                reasons[table["row"][np.isin(table["key"], targets)]] = REASONS.index(HELD_OUT)
        lone.unlink()
        for i in range(_SHARES):
            path = self._folder / f"keys-{i}"
            if self._remove_duplicates:
                table = np.fromfile(path, _KEY)
                table = table[reasons[table["row"]] == REASONS.index(KEPT)]
                # Rows are in order already: the first stays the first
                order = np.argsort(table["key"], kind="stable")
                repeated = table["key"][order][1:] == table["key"][order][:-1]
                reasons[table["row"][order[1:][repeated]]] = REASONS.index(DUPLICATE)
            path.unlink()
        if isinstance(reasons, np.memmap):
            reasons.flush()
        temporary.rename(self.reasons_file)
        return self.reasons()

    def drop(self, rows: np.ndarray, reason: str) -> np.ndarray:
        """Give these rows another reason, after `finish`."""
        reasons = _map(self.reasons_file, "r+")
        reasons[rows] = REASONS.index(reason)
        if isinstance(reasons, np.memmap):
            reasons.flush()
        return self.reasons()

    def reasons(self) -> np.ndarray:
        """The result of `finish`."""
        return read_reasons(self._folder)


def read_reasons(folder: Path) -> np.ndarray:
    """The files of a `ReasonFile` in its folder."""
    return _map(folder / _REASONS, "r")


def _map(path: Path, mode: str) -> np.ndarray:
    if path.stat().st_size == 0:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode)  # type: ignore[call-overload]
