"""Blocks of text and the drop reason of each row, found block by block. Duplicates, and rows of validation
and test sets, are found later from the keys of texts (text/hashes.py).
"""

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, compress, islice, repeat
from pathlib import Path
from typing import Literal

import numpy as np

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import Corpus, EvaluationSentence
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus, HeldOutSplit, read_set, splits_of
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.data.cleaning_rules import (
    COPY,
    DUPLICATE,
    EMPTY,
    HELD_OUT,
    KEPT,
    LEAKED,
    REASONS,
    repaired,
    rules_of,
)
from transformer_mt.data.preparation.store import Sections, Store, sizes_of, text_bytes, text_columns
from transformer_mt.errors import InputError
from transformer_mt.messages import say, say_once, show_progress
from transformer_mt.settings.objectives import objective_class
from transformer_mt.text.hashes import pair_key, sentence_key
from transformer_mt.text.lines import Pair


def training_pairs(entry: Corpus, data: DataConfig) -> Iterator[Pair]:
    """The pairs of a training corpus after the repairs that its filter asks for, before any is dropped."""
    return repaired(entry.read(data.languages), data.filter_of(entry), data.languages_of(entry))


def lone_side(entry: Corpus) -> Literal[0, 1] | None:
    """The side of a corpus that may be the target of a pair whose source is not in this corpus, if any."""
    # A back-translated pair has a new source, but its target may be a held-out reference. Labels never are.
    is_translated = entry.synthetic and objective_class(entry.objective).translates
    return 0 if entry.is_text else 1 if is_translated else None


def may_be_scored(entry: Corpus, data: DataConfig) -> bool:
    """True if pairs of a training corpus may be held out as a validation or test set."""
    if data.objective_of(entry) != data.main_objective or entry.tag or entry.synthetic:
        return False
    if data.language_pieces == "both" and objective_class(entry.objective).translates:
        return data.languages_of(entry) == data.languages  # a set is of one direction
    if not data.directions and len(data.targets) > 1:  # a held-out set is of one language
        return entry.language == data.target_lang
    return True


def check_tags(data: DataConfig) -> None:
    """InputError for tags that a new vocabulary cannot have: SentencePiece divides the words of the text at
    them.
    """
    for entry in data.entries:
        if entry.tag is not None and (entry.tag.isalnum() or entry.tag in ("<s>", "</s>", "<pad>", "<unk>")):
            raise InputError(
                f"the `tag` of {entry.title} must not be <s>, </s>, <pad>, <unk> or only letters and "
                f"digits, but is {entry.tag}; choose one such as <bt>"
            )


BLOCK = 100_000
"""Rows per block; a process that dies loses at most the work on one block."""


class Split:
    """The stage that divides the corpora into blocks; each task reads a corpus or one file of a corpus."""

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
    """True if a text corpus is one side of parallel pairs, and some pairs are held out by their source."""
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
        """Rows before each block; the last entry is the number of all rows."""
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
        """For each text of a block, the source of the pair it belongs to; "" if it belongs to no pair."""
        if not has_pair_sources(entry := self.entry(block), self._data):
            return repeat("")
        sources = ((source, source) for source in self._columns(block)["source"])
        return (source for source, _ in self._repaired(sources, entry.as_translations()))

    def _columns(self, block: int) -> dict[str, list[str]]:
        return text_columns(self._store.read(self._names[block]))

    def _repaired(self, pairs: Iterable[Pair], entry: Corpus) -> Iterator[Pair]:
        whole = repaired(pairs, self._data.filter_of(entry), self._data.languages_of(entry))
        return ((src.strip(), tgt.strip()) for src, tgt in whole)


@dataclass(frozen=True)
class EvaluationKeys:
    """Keys of sentences that training pairs must not have."""

    sources: set[int]
    """Sources of the validation and test sets that are separate corpora; with several directions also their
    targets, which are sources in another direction.
    """
    targets: set[int]
    """Targets of the same sets, to check pairs whose original source is not in their corpus."""
    inherited: frozenset[int] = frozenset()
    """Sentences on which the models that the training starts from were scored."""


def evaluation_keys(data: DataConfig) -> EvaluationKeys:
    """The keys of the sets of a config."""
    keys = EvaluationKeys(set(), set())
    for corpus in (*data.valid_sets, *data.test):
        if isinstance(corpus, FromTrainCorpus):
            continue
        try:
            for src, tgt in corpus.read(data.languages):
                for side, known in ((src, keys.sources), (tgt, keys.targets)):
                    if side.strip():
                        known.add(sentence_key(side))
        except UnknownSplitError as error:
            if any(corpus is valid for valid in data.valid_sets):
                raise
            # Training does not need a test set; `evaluate` will raise the error.
            say(f"warning: test set left out of the leak check: {error}")
    if len(data.directions) > 1:
        both = keys.sources | keys.targets
        return EvaluationKeys(both, both)
    return keys


def validation_sentences(
    corpus: AnySet, data: DataConfig, folder: Path
) -> tuple[list[EvaluationSentence], list[bool]]:
    """Returns (sentences, is_filled). `sentences` is a validation set without empty sources and references;
    `is_filled` tells for each pair read, in order, whether both sides have text. In a held-out set a False
    follows each sentence, because other rows stood between them. InputError if nothing is left.
    """
    kept, is_filled, read = list[EvaluationSentence](), list[bool](), 0
    for src, references in read_set(corpus, data.languages, folder, "valid"):
        read += 1
        of_sentence = [bool(src.strip() and reference.strip()) for reference in references]
        is_filled += [*of_sentence, False] if corpus.is_held_out else of_sentence
        if any(of_sentence):
            kept.append((src, tuple(compress(references, of_sentence))))
    if not kept:
        raise InputError(
            f"{corpus.describe()}: the validation set must have sentence pairs, but all have an empty side"
        )
    if len(kept) < read:
        say_once(f"note: {corpus.describe()}: {read - len(kept):,} of {read:,} pairs have an empty side")
    return kept, is_filled


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
    """The stage that finds the drop reasons that do not depend on other training rows."""

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
        """One share of the keys of all blocks, with their rows, in the order of the rows."""
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
    """Rows whose lone side is the target of a pair that is held out elsewhere."""

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
    """The drop reasons of rows, except those that depend on token counts, which encoding finds."""

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
