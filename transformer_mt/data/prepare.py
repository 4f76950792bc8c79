"""Everything between a config and the first batch: clean, learn the vocabulary, encode, cache.

A cache folder is keyed by everything that made it and appears under its name only when whole.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow
from tqdm import tqdm

from transformer_mt.config import Config
from transformer_mt.data import cleaning
from transformer_mt.data.corpus import Pair, UnknownSplitError, describe, identity, read_corpus
from transformer_mt.data.dataset import EncodedPair, EncodedPairs, write_pairs
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError

FORMAT = 1  # of the cache: raise it when a change in this room alters what is written
TOKENIZER_PAIRS = 500_000  # evenly spaced over the corpus; more change the pieces little and take long
_ENCODE = 10_000

Say = Callable[[str], None]


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


def prepare(config: Config, say: Say, tokenizer: Tokenizer | None = None) -> PreparedData:
    """The data of `config`, from the cache if it is there; `tokenizer` is given when a run goes on."""
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
    _build(config, folder, say, tokenizer)
    opened = _open(folder, say)
    assert opened is not None
    return _announce(opened, say, f"cached in {folder}")


def cache_root() -> Path:
    """$TRANSFORMER_MT_CACHE, or transformer_mt in the user's cache folder. May be deleted at any time between runs."""
    if root := os.environ.get("TRANSFORMER_MT_CACHE"):
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "transformer_mt"


def _key(config: Config, tokenizer: Tokenizer | None) -> str:
    data = config.data
    facts = {
        "format": FORMAT,
        "languages": [data.source_lang, data.target_lang],
        "train": identity(data.train),
        "valid": identity(data.valid),
        "test": [identity(corpus) for corpus in data.test],
        "cleaning": [data.max_length, data.max_length_ratio, data.remove_duplicates],
        "tokenizer": tokenizer.fingerprint if tokenizer else config.tokenizer.model_dump(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _open(folder: Path, say: Say) -> PreparedData | None:
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        lines = (folder / "valid.jsonl").read_text(encoding="utf-8").split("\n")
        return PreparedData(
            tokenizer=Tokenizer.load(folder),
            train=EncodedPairs(folder / "train.arrow"),
            valid=EncodedPairs(folder / "valid.arrow"),
            valid_text=[(row[0], row[1]) for row in map(json.loads, filter(None, lines))],
            fingerprint=facts["fingerprint"],
            counts=Counter(facts["counts"]),
        )
    except (OSError, ValueError, KeyError, pyarrow.ArrowException) as error:
        say(f"the cache {folder} is damaged ({error}); it is made again")
        shutil.rmtree(folder)
        return None


def _announce(data: PreparedData, say: Say, place: str) -> PreparedData:
    say(f"training pairs ({place}):\n{cleaning.table(data.counts)}")
    return data


def _build(config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None) -> None:
    root = folder.parent
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=root))
    except OSError as error:
        raise WorkError(
            f"{root}: the cache must be writable ({error.strerror}); set TRANSFORMER_MT_CACHE to another folder"
        ) from None
    try:
        _fill(config, temporary, say, tokenizer)
        try:
            temporary.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster, with the same content
                raise
    except (OSError, pyarrow.ArrowException) as error:
        raise WorkError(
            f"{root}: could not write the encoded data: {error}; free some space or set TRANSFORMER_MT_CACHE"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what processes that were killed left behind, a day later."""
    for path in root.glob("*.tmp-*"):
        if time.time() - path.stat().st_mtime > 86_400:
            shutil.rmtree(path, ignore_errors=True)


def _fill(config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None) -> None:
    data = config.data
    valid = [pair for pair in read_corpus(data.valid, data) if pair[0].strip() and pair[1].strip()]
    if not valid:
        raise InputError(
            f"{describe(data.valid)}: the validation set must have sentence pairs, but all have an empty side"
        )
    held_out = {cleaning.pair_key(pair) for pair in valid}
    for corpus in data.test:
        try:
            held_out.update(cleaning.pair_key(pair) for pair in read_corpus(corpus, data))
        except UnknownSplitError as error:
            # Training does not need it; `evaluate` will refuse.
            say(f"warning: test set left out of the leak check: {error}")

    def kept(what: str, counts: Counter[str]) -> Iterator[Pair]:
        pairs = tqdm(
            read_corpus(data.train, data),
            what,
            unit=" pairs",
            unit_scale=True,
            disable=not sys.stderr.isatty(),
            leave=False,
        )
        return cleaning.clean(pairs, held_out, data.remove_duplicates, counts)

    if tokenizer is None:
        say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} pieces from {describe(data.train)}")
        sample = _evenly(kept("reading", Counter()), TOKENIZER_PAIRS)
        if not sample:
            raise InputError(
                f"{describe(data.train)}: no training pair is left after cleaning; every one is empty or held out"
            )
        tokenizer = Tokenizer.train(sample, config.tokenizer)
        del sample
    tokenizer.save(folder)

    counts: Counter[str] = Counter()
    fingerprint = write_pairs(folder / "train.arrow", _encode(kept("encoding", counts), tokenizer, config, counts))
    if not counts[cleaning.KEPT]:
        raise InputError(f"{describe(data.train)}: no training pair is left after cleaning:\n{cleaning.table(counts)}")
    fingerprint += write_pairs(folder / "valid.arrow", _encode(valid, tokenizer, config, Counter()))
    with (folder / "valid.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(pair, ensure_ascii=False) + "\n" for pair in valid)
    facts = {"fingerprint": hashlib.sha256(fingerprint.encode()).hexdigest(), "counts": counts}
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def _evenly(pairs: Iterable[Pair], most: int) -> list[Pair]:
    """At most `most` of the pairs, evenly spaced, in one pass of unknown length."""
    sample: list[Pair] = []
    stride = 1
    for i, pair in enumerate(pairs):
        if i % stride == 0:
            sample.append(pair)
            if len(sample) > most:
                del sample[1::2]
                stride *= 2
    return sample


def _encode(pairs: Iterable[Pair], tokenizer: Tokenizer, config: Config, counts: Counter[str]) -> Iterator[EncodedPair]:
    pairs = iter(pairs)
    while chunk := list(islice(pairs, _ENCODE)):
        sides = zip(tokenizer.encode_src([src for src, _ in chunk]), tokenizer.encode_tgt([tgt for _, tgt in chunk]))
        for src, tgt in sides:
            reason = cleaning.misfit(len(src), len(tgt), config.data.max_length, config.data.max_length_ratio)
            counts[reason or cleaning.KEPT] += 1
            if reason is None:
                yield src, tgt
