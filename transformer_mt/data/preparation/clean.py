"""The drop reason of each row, found block by block; duplicates and lone sides are found later, from keys."""

import json
from collections.abc import Iterator, Set

import numpy as np

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.held_out import splits_of
from transformer_mt.data.cleaning.cleaning_rules import rules_of
from transformer_mt.data.cleaning.drop_reasons import COPY, EMPTY, HELD_OUT, KEPT, LEAKED, REASONS
from transformer_mt.data.preparation.evaluation_keys import EvaluationKeys
from transformer_mt.data.preparation.sections import Sections
from transformer_mt.data.preparation.split import TextBlocks
from transformer_mt.data.preparation.store import Store, sizes_of
from transformer_mt.data.preparation.training_pairs import lone_side, may_be_scored
from transformer_mt.text.hashes import pair_key, sentence_key
from transformer_mt.text.pair import Pair

KEY = np.dtype([("key", np.uint64), ("row", np.uint64)])
"""A key of a row's text, and the row's number."""
_SHARE = 128
"""Blocks whose keys are sorted at a time: 13 million keys, 200 MB."""


class _Rows:
    """Finds the drop reasons of the rows of one block, and collects the rows that are held out."""

    def __init__(self, data: DataConfig, entry: Corpus, left_out: EvaluationKeys) -> None:
        self._splits = splits_of(data.valid_sets, data.test)
        self._left_out, self._side = left_out, lone_side(entry)
        self._leaves_out_targets = data.leaves_out_targets
        self._left_out_targets: Set[int] = left_out.targets if self._leaves_out_targets else frozenset()
        if self._side is not None:
            self._left_out_targets = left_out.targets | left_out.inherited
        rules = rules_of(data.filter_of(entry), data.languages_of(entry))
        self._rules = [rule for rule in rules if rule.reason != COPY or not entry.is_text]
        self._may_be_scored = may_be_scored(entry, data)
        self._has_lone_sides = any(lone_side(other) is not None for other in data.entries)
        self.scored: list[tuple[int, int, int, Pair]] = []
        """(split, key of the source, row, pair) of held-out pairs that may be scored."""
        self.targets: list[int] = []
        """Keys of the targets that are held out."""
        self.lone: list[tuple[int, int]] = []
        """(key, row) of texts that are left out if they are the target of a held-out pair elsewhere."""

    def reason(self, row: int, pair: Pair, pair_source: str) -> str:
        """Why this row is dropped; KEPT if no reason is known yet."""
        reason = self._reason(row, pair, pair_source)
        if reason == KEPT and self._splits and (self._side is not None or self._leaves_out_targets):
            self.lone.append((sentence_key(pair[1 if self._side is None else self._side]), row))
        return reason

    def _reason(self, row: int, pair: Pair, pair_source: str) -> str:
        src, tgt = pair
        if not src or not tgt:
            return EMPTY
        if self._left_out.sources or self._splits or self._left_out.inherited:
            key = sentence_key(src)
            if key in self._left_out.sources:
                return LEAKED
            if self._left_out_targets and sentence_key(tgt) in self._left_out_targets:
                return LEAKED
            if self._is_held_out(row, pair, sentence_key(pair_source) if pair_source else key):
                return HELD_OUT
            if key in self._left_out.inherited:
                return LEAKED
        return next((rule.reason for rule in self._rules if rule.drops(src, tgt)), KEPT)

    def _is_held_out(self, row: int, pair: Pair, source_key: int) -> bool:
        """True for a held-out row. Called before the rules, so that filters are compared on the same sets."""
        number = next((i for i, split in enumerate(self._splits) if split.takes(source_key)), None)
        if number is None:
            return False
        if self._may_be_scored:
            self.scored.append((number, source_key, row, pair))
        if self._leaves_out_targets or (self._has_lone_sides and self._side is None):
            self.targets.append(sentence_key(pair[1]))
        return True


class Clean:
    """The stage that finds the drop reasons that a row has by itself."""

    what = "cleaning"

    def __init__(self, data: DataConfig, text: TextBlocks, left_out: EvaluationKeys, store: Store) -> None:
        self._data, self._text, self._left_out, self._store = data, text, left_out, store
        self.sizes = text.sizes
        self.num_shares = -(-len(text) // _SHARE)
        self._keys = Sections(store, KEY, self.num_shares)
        self._key_files = [_file(block, "keys") for block in range(len(text))]

    def result(self, number: int) -> str:
        return _file(number, "reasons")

    def run(self, number: int) -> None:
        entry = self._text.entry(number)
        rows, language = _Rows(self._data, entry, self._left_out), self._target_language(entry)
        is_near = self._data.remove_duplicates == "near"
        reasons, keys = bytearray(), list[tuple[int, int]]()
        pairs = zip(self._text.pairs(number), self._text.pair_sources(number))
        for row, (pair, source) in enumerate(pairs, self._text.starts[number]):
            reason = rows.reason(row, pair, source)
            reasons.append(REASONS.index(reason))
            if reason == KEPT:
                # With the language in the key, one text as Bokmål and as Nynorsk is not a duplicate.
                target = f"{language}\n{pair[1]}" if language else pair[1]
                keys.append((pair_key((pair[0], target), is_near), row))
        self._write_keys(number, np.array(keys, KEY))
        self._store.write(_file(number, "held"), json.dumps(rows.scored).encode())
        self._store.write(_file(number, "targets"), np.array(rows.targets, np.uint64).tobytes())
        self._store.write(_file(number, "lone"), np.array(rows.lone, KEY).tobytes())
        self._store.write(self.result(number), bytes(reasons))

    def _target_language(self, entry: Corpus) -> str:
        language = self._data.languages_of(entry)[1] if len(self._data.targets) > 1 else ""
        if entry.is_text and len(self._data.objectives) > 1:
            language += entry.objective  # one text may serve several objectives
        return language

    def _write_keys(self, number: int, keys: np.ndarray) -> None:
        share = keys["key"] % np.uint64(self.num_shares)
        order = np.argsort(share, kind="stable")
        bounds = np.searchsorted(share[order], np.arange(self.num_shares + 1))
        self._keys.write(self._key_files[number], keys[order], bounds)

    def num_keys(self) -> list[int]:
        """The rows of each block that no rule dropped."""
        return [self._keys.num_values(size) for size in sizes_of(self._store, self._key_files)]

    def keys(self, share: int) -> np.ndarray:
        """The keys of all blocks in a share of all keys, and their rows, in order."""
        return np.concatenate(self._keys.read(self._key_files, share))

    def reasons(self, block: int) -> np.ndarray:
        """The reasons of a block's rows, as indices into REASONS."""
        return np.frombuffer(bytearray(self._store.read(self.result(block))), np.uint8)

    def held_out(self, block: int) -> Iterator[tuple[int, int, int, Pair]]:
        """(split, key of the source, row, pair) of the held-out pairs of a block that may be scored."""
        for *numbers, pair in json.loads(self._store.read(_file(block, "held"))):
            yield *numbers, tuple(pair)

    def held_out_targets(self, block: int) -> np.ndarray:
        """Keys of the targets that are held out of a block."""
        return np.frombuffer(self._store.read(_file(block, "targets")), np.uint64)

    def lone(self, block: int) -> np.ndarray:
        """Keys and rows of the lone sides of a block."""
        return np.frombuffer(self._store.read(_file(block, "lone")), KEY)


def _file(block: int, kind: str) -> str:
    return f"clean/{block:05d}.{kind}"
