"""Everything between a config and the first batch: clean, learn the vocabulary, encode, cache.

The name of a cache folder is a hash of its inputs; the folder gets this name only when it is complete. The
memory of both passes over the corpus is independent of the number of pairs. An interrupted first pass starts
again; an interrupted second pass, which encodes, is resumed.
"""

import errno
import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow

from transformer_mt.cache import cache_root
from transformer_mt.config import Config
from transformer_mt.data import cleaning
from transformer_mt.data.corpus import (
    Pair,
    UnknownSplitError,
    describe,
    described_access,
    identity,
    read_corpus,
)
from transformer_mt.data.dataset import EncodedPairs, write_chunks
from transformer_mt.data.drop_reasons import DropReasons
from transformer_mt.data.encode import encoded_chunks
from transformer_mt.data.sentences import has_several_sentences
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import fsync, write_text
from transformer_mt.locks import wait_for_folder
from transformer_mt.progress_bar import show_progress

FORMAT = 2  # of the cache: raise it when a change in this package alters what is written
TOKENIZER_PAIRS = 500_000  # evenly spaced over the corpus; more change the pieces little and take long
SENTENCE_PAIRS = 20_000  # evenly spaced: enough to say which share of the sources has several sentences
SHARD = 500_000  # rows of the corpus; an interruption loses at most the work on one

_SURVEYED = "survey.json"  # says that the first pass is done

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class PreparedData:
    """What training needs of the data."""

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: EncodedPairs
    """Validation pairs that fit a batch, for the loss."""
    valid_text: list[Pair]
    """Validation pairs as text, for BLEU."""
    fingerprint: str
    """A hash of all training and validation ids: the same data gives the same."""
    counts: Counter[str]
    several_sentences: float | None = None
    """Share of the training sources with more than one sentence; None in caches of versions that did not
    count it.
    """


def prepare(config: Config, say: Say, tokenizer: Tokenizer | None = None) -> PreparedData:
    """The data of `config`, from the cache if it is there; `tokenizer` is given when a run is resumed."""
    folder = cache_root() / _key(config, None)
    if (
        folder.is_dir()
        and (data := _open(folder, say))
        and (tokenizer is None or data.tokenizer.fingerprint == tokenizer.fingerprint)
    ):
        return _announce(data, say, f"from the cache {folder}")
    if tokenizer is not None:
        folder = cache_root() / _key(config, tokenizer)
        if folder.is_dir() and (data := _open(folder, say)):
            return _announce(data, say, f"from the cache {folder}")
    return _announce(_build(config, folder, say, tokenizer), say, f"cached in {folder}")


def _key(config: Config, tokenizer: Tokenizer | None) -> str:
    data = config.data
    facts = {
        "format": FORMAT,
        "languages": [data.source_lang, data.target_lang],
        "train": identity(data.train),
        "valid": identity(data.valid),
        "test": [identity(corpus) for corpus in data.test],
        "cleaning": [data.max_length, data.max_length_ratio, data.remove_duplicates],
        "tokenizer": tokenizer.fingerprint
        if tokenizer
        else config.tokenizer.model_dump(exclude={"bpe_dropout"}),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _open(folder: Path, say: Say) -> PreparedData | None:
    """Load a cache folder. If it is damaged, report it and return None."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        lines = (folder / "valid.jsonl").read_text(encoding="utf-8").split("\n")
        train = EncodedPairs(sorted(folder.glob("train-*.arrow")))
        if len(train) != facts["counts"][cleaning.KEPT]:
            raise ValueError(f"{len(train):,} of its {facts['counts'][cleaning.KEPT]:,} pairs are left")
        return PreparedData(
            tokenizer=Tokenizer.load(folder),
            train=train,
            valid=EncodedPairs([folder / "valid.arrow"]),
            valid_text=[(row[0], row[1]) for row in map(json.loads, filter(None, lines))],
            fingerprint=facts["fingerprint"],
            counts=Counter(facts["counts"]),
            several_sentences=facts.get("several_sentences"),
        )
    except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
        # A file cut short is an OSError without a number; one that may not be read, or a broken disk, is no
        # reason to delete.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise WorkError(
                f"{error.filename or folder}: the cache cannot be read: {error.strerror}; check the place, "
                "or set TRANSFORMER_MT_CACHE to another folder"
            ) from None
        say(f"the cache {folder} is damaged ({error}); it is rebuilt")
        return None


def _announce(data: PreparedData, say: Say, place: str) -> PreparedData:
    say(f"training pairs ({place}):\n{cleaning.table(data.counts)}")
    return data


def _build(config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None) -> PreparedData:
    """Make the cache folder, resuming what an interrupted process left in `.part`."""
    root, part = folder.parent, folder.with_name(f"{folder.name}.part")
    try:
        root.mkdir(parents=True, exist_ok=True)
        # One process at a time: it uses all cores, and the next may find here what it needs.
        with wait_for_folder(root, lambda: say(f"another process prepares data in {root}; waiting for it")):
            _remove_abandoned(root)
            if folder.is_dir():
                if data := _open(folder, lambda text: None):  # another process made it while this one waited
                    return data
                shutil.rmtree(folder)  # damaged, as was said
            part.mkdir(exist_ok=True)
            try:
                _prepare_into(config, part, say, tokenizer)
            except InputError:
                if not (
                    part / _SURVEYED
                ).exists():  # what was encoded stays: a file out of reach may come back
                    shutil.rmtree(part, ignore_errors=True)
                raise
            if _key(config, tokenizer) != folder.name:
                shutil.rmtree(part, ignore_errors=True)
                raise InputError(
                    "the corpus must stay as it is while it is read, but has changed; start again"
                )
            part.rename(folder)
            shutil.rmtree(folder / "survey")  # last: until here an interrupted run can resume
            if data := _open(folder, say):
                return data
            raise WorkError(f"{folder}: must read as it was written, but does not; check the disk")
    except (OSError, pyarrow.ArrowException) as error:
        raise WorkError(
            f"{root}: could not write the encoded data: {error}; free some space, or set "
            "TRANSFORMER_MT_CACHE to a folder that has it, and start again: it resumes from here"
        ) from None


def _remove_abandoned(root: Path) -> None:
    """Remove unfinished folders that are older than a week."""
    for path in root.glob("*.part"):
        if time.time() - path.stat().st_mtime > 7 * 86_400:
            shutil.rmtree(path, ignore_errors=True)


def _prepare_into(config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None) -> None:
    data = config.data
    say(f"reading {described_access(data.valid)} (validation)")
    valid = [pair for pair in read_corpus(data.valid, data) if pair[0].strip() and pair[1].strip()]
    if not valid:
        raise InputError(
            f"{describe(data.valid)}: the validation set must have sentence pairs, but all have an empty side"
        )
    reasons, tokenizer = _first_pass(config, folder, say, tokenizer, valid)
    counts: Counter[str] = Counter()
    for start in range(0, len(reasons), SHARD):
        of_each = np.bincount(reasons[start : start + SHARD], minlength=len(cleaning.REASONS))
        counts.update(dict(zip(cleaning.REASONS, of_each.tolist())))
    counts[cleaning.READ], counts[cleaning.KEPT] = len(reasons), 0
    fingerprints = []
    for shard in _encode_shards(config, folder, say, tokenizer, reasons):
        facts = json.loads(shard.read_text(encoding="utf-8"))
        counts.update(facts["counts"])
        fingerprints.append(facts["fingerprint"])
    if not counts[cleaning.KEPT]:
        raise InputError(
            f"{describe(data.train)}: no training pair is left after cleaning:\n{cleaning.table(counts)}"
        )
    fingerprints.append(
        write_chunks(folder / "valid.arrow", encoded_chunks(valid, tokenizer, data, Counter()))
    )
    fsync(folder / "valid.arrow")
    write_text(folder / "valid.jsonl", "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in valid))
    facts = {"fingerprint": hashlib.sha256("".join(fingerprints).encode()).hexdigest(), "counts": +counts}
    facts["several_sentences"] = json.loads((folder / _SURVEYED).read_text(encoding="utf-8")).get(
        "several_sentences"
    )
    write_text(folder / "facts.json", json.dumps(facts))


def _first_pass(
    config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None, valid: list[Pair]
) -> tuple[np.ndarray, Tokenizer]:
    """The first pass: the drop reason of each row, and the vocabulary learnt from those kept.
    Both are saved.
    """
    data = config.data
    held_out = {cleaning.pair_key(pair) for pair in valid}
    for corpus in data.test:
        try:
            held_out.update(cleaning.pair_key(pair) for pair in read_corpus(corpus, data))
        except UnknownSplitError as error:
            # Training does not need it; `evaluate` will refuse.
            say(f"warning: test set left out of the leak check: {error}")
    survey, done = DropReasons(folder / "survey", held_out, data.remove_duplicates), folder / _SURVEYED
    if done.exists() and survey.reasons_file.exists():
        say("resuming the preparation of the data, which was interrupted")
        return survey.reasons(), Tokenizer.load(folder)
    say(f"reading {described_access(data.train)} (training)")
    sample = _evenly_spaced(survey.walk(_bar(read_corpus(data.train, data), "reading")), TOKENIZER_PAIRS)
    reasons = survey.finish()
    fsync(survey.reasons_file)
    if tokenizer is None:
        say(
            f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} pieces from "
            f"{describe(data.train)}"
        )
        kept = cleaning.REASONS.index(cleaning.KEPT)
        pairs = [pair for row, pair in sample if reasons[row] == kept]
        if not pairs:
            raise InputError(
                f"{describe(data.train)}: no training pair is left after cleaning; every one is empty or "
                "held out"
            )
        tokenizer = Tokenizer.train(pairs, config.tokenizer)
    tokenizer.save(folder)
    sources = [src for _, (src, _) in sample[:: -(-len(sample) // SENTENCE_PAIRS) or 1]]
    several = sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))
    write_text(done, json.dumps({"rows": len(reasons), "several_sentences": several}))
    return reasons, tokenizer


def _encode_shards(
    config: Config, folder: Path, say: Say, tokenizer: Tokenizer, reasons: np.ndarray
) -> list[Path]:
    """The second pass: encode the kept rows, a shard of so many rows after the other; those that are there
    stay.
    """
    data, kept = config.data, cleaning.REASONS.index(cleaning.KEPT)
    marks = [folder / f"train-{i:05d}.json" for i in range(-(-len(reasons) // SHARD))]
    done = next((i for i, mark in enumerate(marks) if not mark.exists()), len(marks))
    pairs = islice(read_corpus(data.train, data), done * SHARD, None)
    bar = _bar(pairs, "encoding", total=len(reasons), initial=done * SHARD)
    rows = (
        (src.strip(), tgt.strip(), drop_reason == kept)
        for (src, tgt), drop_reason in zip(bar, reasons[done * SHARD :])
    )
    for i in range(done, len(marks)):
        counts: Counter[str] = Counter()
        wanted = ((src, tgt) for src, tgt, is_kept in islice(rows, SHARD) if is_kept)
        arrow = marks[i].with_suffix(".arrow")
        fingerprint = write_chunks(arrow, encoded_chunks(wanted, tokenizer, data, counts))
        fsync(arrow)
        write_text(marks[i], json.dumps({"fingerprint": fingerprint, "counts": counts}))
        if len(marks) > 1:
            say(f"encoded {min(len(reasons), (i + 1) * SHARD):,} of {len(reasons):,} pairs")
    return marks


def _bar(pairs: Iterable[Pair], what: str, total: int | None = None, initial: int = 0) -> Iterable[Pair]:
    return show_progress(pairs, what, total, initial, unit="pairs")


def _evenly_spaced(pairs: Iterable[T], most: int) -> list[T]:
    """At most `most` of the pairs, evenly spaced, in one pass of unknown length."""
    sample: list[T] = []
    stride = 1
    for i, pair in enumerate(pairs):
        if i % stride == 0:
            sample.append(pair)
            if len(sample) > most:
                del sample[1::2]
                stride *= 2
    return sample
