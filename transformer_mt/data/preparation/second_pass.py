"""The second pass over the training corpora: the ids of the kept rows, in shards.

A shard is encoded by one process, and several may encode different ones: the ranks of a training, and
machines that share the cache.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.kind import Corpus
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.batches.encoded_pairs import Chunk, write_chunks
from transformer_mt.data.cleaning import drop_reasons
from transformer_mt.data.preparation.encode import encoded_chunks
from transformer_mt.data.preparation.first_pass import (
    FIRST_PASS_FOLDER,
    FirstPassResult,
    lone_side,
    training_pairs,
)
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import fsync, write_text
from transformer_mt.locks import lock_shard
from transformer_mt.messages import say
from transformer_mt.progress_bar import show_progress
from transformer_mt.text.key_set import KeySet
from transformer_mt.text.pair import Pair

SHARD = 500_000  # rows; an interruption loses at most the work on one
_SKIPPED_AT_ONCE = 10_000  # rows read before the next look at whether to stop


@dataclass
class CorpusCounts:
    """Counts of one training corpus: pairs kept and dropped, by reason."""

    name: str
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int = 0
    """Pieces of the kept pairs, end-of-sentence counted."""
    target_tokens: int = 0


def second_pass(
    config: Config, folder: Path, tokenizer: Tokenizer, first: FirstPassResult
) -> tuple[list[CorpusCounts], list[str]]:
    """Encode the kept rows; shards that are there stay, and helpers may encode some. Returns the counts of
    each corpus and a fingerprint of each shard.
    """
    total = len(first.reasons)
    encoder = ShardEncoder(config, folder, tokenizer, first)
    done = sum(mark.exists() for mark in encoder.marks)
    bar = show_progress(None, "encoding", total, min(total, done * SHARD), unit="pairs")
    for wait in (False, True):  # first those that no helper encodes, then wait for the helpers
        for i in range(len(encoder.marks)):
            if encoder.encode(i, wait) and len(encoder.marks) > 1:
                done = min(total, SHARD * sum(mark.exists() for mark in encoder.marks))
                say(f"encoded {done:,} of {total:,} pairs")
                bar.update(done - bar.n)
    bar.close()
    return _sums(config.data, first, encoder.marks), [_facts(mark)["fingerprint"] for mark in encoder.marks]


class ShardEncoder:
    """Encodes shards of SHARD rows, each by one process: the first that asks for it."""

    def __init__(self, config: Config, folder: Path, tokenizer: Tokenizer, first: FirstPassResult) -> None:
        """`folder` holds what the first pass found, and gets the shards."""
        self._config, self._folder, self._tokenizer, self._first = config, folder, tokenizer, first
        self.marks = [folder / f"train-{i:05d}.json" for i in range(-(-len(first.reasons) // SHARD))]
        """Written when a shard is complete."""
        self._starts = [0, *accumulate(first.sizes)]
        self._readers: dict[int, tuple[Iterator[Pair], int]] = {}
        """The pairs of each corpus that is being read, and how many were taken."""

    def encode(self, number: int, wait: bool, stop: Callable[[], bool] = lambda: False) -> bool:
        """Encode this shard unless it is complete, or another process encodes it; `wait` waits for that one.
        Returns whether it was encoded here; nothing is once `stop` returns True.
        """
        mark = self.marks[number]
        rows = number * SHARD, min((number + 1) * SHARD, len(self._first.reasons))
        if mark.exists():
            return False
        # Before the lock: a process that joins late may read for minutes until it is there.
        if not wait and not self._move_to(rows, stop):
            return False
        lock = lock_shard(self._folder / FIRST_PASS_FOLDER / f"{mark.stem}.lock", wait)
        if lock is None:
            return False
        with lock:
            if mark.exists():
                return False
            counts: dict[int, CorpusCounts] = {}
            arrow, keys = mark.with_suffix(".arrow"), KeysOfRows([], [])
            chunks = takewhile(lambda chunk: not stop(), self._chunks(rows, counts, keys))
            fingerprint = write_chunks(arrow, chunks, self._tokenizer.num_ids)
            if stop():
                return False
            fsync(arrow)
            keys.write(self._folder, mark.stem)
            facts = {"fingerprint": fingerprint, "corpora": {n: asdict(count) for n, count in counts.items()}}
            write_text(mark, json.dumps(facts))
            return True

    def _chunks(
        self, rows: tuple[int, int], counts: dict[int, CorpusCounts], keys: "KeysOfRows"
    ) -> Iterator[Chunk]:
        """The encoded rows from the first to before the last of `rows`, which may lie in several corpora;
        fills their counts, and their keys.
        """
        data, kept = self._config.data, drop_reasons.REASONS.index(drop_reasons.KEPT)
        for number, (entry, start, stop) in enumerate(zip(data.entries, self._starts, self._starts[1:])):
            begin, end = max(rows[0], start), min(rows[1], stop)
            if begin >= end:
                continue
            reasons = self._first.reasons[begin:end]
            pairs = self._pairs(number, begin - start, end - start)
            wanted = (
                (src.strip(), tgt.strip())
                for (src, tgt), reason in _with_reasons(pairs, reasons, entry.title)
                if reason == kept
            )
            dropped: Counter[str] = Counter()
            of_corpus = counts[number] = CorpusCounts(entry.title, {})
            before, before_tgt = data.pieces_before(entry), data.target_piece(data.languages_of(entry))
            has_labels, of_pairs = entry.objective == "classification", list[np.ndarray]()
            for chunk in encoded_chunks(
                wanted, self._tokenizer, data, dropped, before, before_tgt, has_labels, of_pairs
            ):
                of_corpus.source_tokens += len(chunk[0].values) + len(chunk[0].lengths)
                of_corpus.target_tokens += len(chunk[1].values) + len(chunk[1].lengths)
                yield chunk
            keys.add(of_pairs, entry)
            of_corpus.counts = dict(dropped)

    def _move_to(self, rows: tuple[int, int], stop: Callable[[], bool]) -> bool:
        """Read the corpus in which these rows begin up to them; returns whether that was not stopped."""
        number = bisect_right(self._starts, rows[0]) - 1
        self._reader_at(number, rows[0] - self._starts[number], stop)
        return not stop()

    def _pairs(self, number: int, begin: int, end: int) -> Iterator[Pair]:
        """These pairs of a corpus."""
        reader = self._reader_at(number, begin)
        self._readers[number] = reader, end
        return islice(reader, end - begin)

    def _reader_at(self, number: int, begin: int, stop: Callable[[], bool] = lambda: False) -> Iterator[Pair]:
        """The pairs of a corpus from `begin` on, unless stopped before. The reader of an earlier shard is
        used again if it has not passed `begin`; else the corpus is read from its beginning.
        """
        reader, taken = self._readers.get(number, (iter(()), begin + 1))
        if taken > begin:
            reader, taken = training_pairs(self._config.data.entries[number], self._config.data), 0
        while taken < begin and not stop():
            step = min(_SKIPPED_AT_ONCE, begin - taken)
            next(islice(reader, step, step), None)
            taken += step
        self._readers[number] = reader, taken
        return reader


class KeysOfRows(NamedTuple):
    """Keys of the sentences in a shard, as `Sentences` has them."""

    trained: list[np.ndarray]
    alone: list[np.ndarray]

    def add(self, pairs: Sequence[np.ndarray], entry: Corpus) -> None:
        """Add the sentences of a corpus; `pairs` are the (pairs, 2) keys of both sides."""
        src, tgt = np.concatenate([np.empty((0, 2), np.uint64), *pairs]).T
        if entry.is_text:
            self.alone.append(src)
            return
        self.trained.append(src)
        if entry.objective == "translation":
            (self.trained if lone_side(entry) is None else self.alone).append(tgt)

    def write(self, folder: Path, shard: str) -> None:
        """Write the keys of a shard with what the first pass found: both stay until the data are complete."""
        for name, arrays in self._asdict().items():
            file = folder / FIRST_PASS_FOLDER / f"{shard}.{name}.npy"
            np.save(file, np.concatenate([np.empty(0, np.uint64), *arrays]))


def trained_sentences(folder: Path) -> Sentences:
    """The sentences in all shards of the folder."""
    files = (sorted((folder / FIRST_PASS_FOLDER).glob(f"train-*.{name}.npy")) for name in KeysOfRows._fields)
    return Sentences(*(KeySet.of_arrays([np.load(file, mmap_mode="r") for file in some]) for some in files))


def _sums(data: DataConfig, first: FirstPassResult, marks: Sequence[Path]) -> list[CorpusCounts]:
    """The counts of each corpus over both passes and all shards."""
    sums = []
    starts = [0, *accumulate(first.sizes)]
    shards = [_facts(mark)["corpora"] for mark in marks]
    for number, (entry, start, stop) in enumerate(zip(data.entries, starts, starts[1:])):
        of_each = np.bincount(first.reasons[start:stop], minlength=len(drop_reasons.REASONS))
        counts = Counter(dict(zip(drop_reasons.REASONS, of_each.tolist())))
        counts[drop_reasons.READ], counts[drop_reasons.KEPT] = stop - start, 0
        of_corpus = CorpusCounts(entry.title, {})
        for shard in shards:
            if part := shard.get(str(number)):
                counts.update(part["counts"])
                of_corpus.source_tokens += part["source_tokens"]
                of_corpus.target_tokens += part["target_tokens"]
        of_corpus.counts = dict(+counts)
        sums.append(of_corpus)
    return sums


def _facts(mark: Path) -> dict:
    return json.loads(mark.read_text(encoding="utf-8"))


def _with_reasons(pairs: Iterator[Pair], reasons: np.ndarray, title: str) -> Iterator[tuple[Pair, int]]:
    """The rows with the drop reasons that the first pass found. InputError if there are fewer now: a set of
    the hub may have changed meanwhile.
    """
    count = 0
    for pair, reason in zip(pairs, reasons.tolist()):
        count += 1
        yield pair, reason
    if count < len(reasons):
        raise InputError(
            f"{title}: must not change during preparation, but has {len(reasons) - count:,} rows fewer "
            "than before; start again with another `revision`, or with the current files"
        )
