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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow

from transformer_mt.cache import cache_root
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.held_out import (
    AnySet,
    FromTrainCorpus,
    as_lines,
    held_out_file,
    rows_of,
    splits_of,
)
from transformer_mt.corpora.kind import EvaluationSentence
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, SeenSentences, Sentences
from transformer_mt.data.batches.encoded_pairs import EncodedPairs, write_chunks
from transformer_mt.data.batches.mixture import effective_weights
from transformer_mt.data.cleaning import drop_reasons
from transformer_mt.data.cleaning.rules import check_filter
from transformer_mt.data.preparation.change_facts import change_facts, neighbours_of_set
from transformer_mt.data.preparation.encode import encoded_chunks
from transformer_mt.data.preparation.first_pass import (
    FIRST_PASS_FILE,
    FIRST_PASS_FOLDER,
    first_pass,
    validation_sentences,
)
from transformer_mt.data.preparation.second_pass import CorpusCounts, second_pass, trained_sentences
from transformer_mt.data.preparation.shard_helper import ShardHelper
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import fsync, write_text
from transformer_mt.locks import FolderLock, wait_for_folder
from transformer_mt.markdown import table
from transformer_mt.messages import messages_to, say
from transformer_mt.settings.objective import Objective
from transformer_mt.text.pair import Pair

_SEEN_FILE = "seen.safetensors"
FORMAT = 10  # of the cache: raise it when a change in this package alters what is written


@dataclass(frozen=True)
class ValidationSet:
    """A validation set."""

    name: str
    pairs: EncodedPairs
    """Pairs that fit a batch, for the loss; a source with several references is in as many."""
    sentences: list[EvaluationSentence]
    """The text, for BLEU and other metrics."""
    tag: str | None
    """Before each source."""
    languages: tuple[str, str]
    """Source and target."""
    objective: Objective = "translation"
    neighbours: EncodedPairs | None = None
    """For next sentences: a piece for each text that the next row follows."""


@dataclass(frozen=True)
class PreparedData:
    """The data as training needs them."""

    tokenizer: Tokenizer
    train: EncodedPairs
    valid: list[ValidationSet]
    """The validation sets, in the order of `data.valid`."""
    fingerprint: str
    """A hash of all training and validation ids: the same data gives the same."""
    corpora: list[CorpusCounts]
    """Kept and dropped pairs of each training corpus, in order."""
    weights: list[float]
    """Uses of each pair of a corpus per epoch."""
    several_sentences: float
    """Share of the training sources with more than one sentence."""
    held_out: dict[str, list[Pair]]
    """The sets held out of the training corpora, by name: valid, test."""
    seen_file: Path
    """The record of the sentences of the training pairs."""
    links: EncodedPairs | None = None
    """For each training pair the source and the target positions of pieces that belong together."""

    @property
    def sizes(self) -> list[int]:
        """Kept pairs of each corpus: they follow one another in `train`."""
        return [corpus.counts.get(drop_reasons.KEPT, 0) for corpus in self.corpora]


def prepare(
    config: Config, tokenizer: Tokenizer | None = None, inherited: Sentences = NOTHING_SEEN
) -> PreparedData:
    """The data of `config`, from the cache if it is there. `tokenizer` is the vocabulary, where it is not to
    be learnt. Training pairs with a source that an `inherited` model was scored by are dropped, as those of
    the validation and test sets are; what it was trained on is not held out.
    """
    data = _prepared(config, tokenizer, inherited)
    neighbours = [
        neighbours_of_set(config, valid.pairs, corpus, data.tokenizer, data.fingerprint)
        for valid, corpus in zip(data.valid, config.data.valid_sets)
    ]
    valid_sets = [replace(valid, neighbours=found) for valid, found in zip(data.valid, neighbours)]
    data = replace(data, valid=valid_sets)
    links, facts = change_facts(config, data.train, data.sizes, data.tokenizer, data.fingerprint)
    if not facts:
        return data
    fingerprint = hashlib.sha256(" ".join([data.fingerprint, *facts]).encode()).hexdigest()
    return replace(data, links=links, fingerprint=fingerprint)


def _prepared(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> PreparedData:
    """The data without links."""
    folder = cache_root() / _key(config, None, inherited)
    if (
        folder.is_dir()
        and (data := _open(config.data, folder))
        and (tokenizer is None or data.tokenizer.fingerprint == tokenizer.fingerprint)
    ):
        return _announce(data, f"from the cache {folder}")
    if tokenizer is not None:
        folder = cache_root() / _key(config, tokenizer, inherited)
        if folder.is_dir() and (data := _open(config.data, folder)):
            return _announce(data, f"from the cache {folder}")
    return _announce(_build(config, folder, tokenizer, inherited), f"cached in {folder}")


def _key(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> str:
    data = config.data
    facts = {
        "format": FORMAT,
        "languages": [data.source_lang, data.target_lang],
        "train": [entry.identity() for entry in data.entries],
        "valid": [corpus.identity() for corpus in data.valid_sets],
        "test": [corpus.identity() for corpus in data.test],
        "cleaning": [data.max_length, data.max_length_ratio, data.remove_duplicates],
        "filters": [data.filter_of(entry).model_dump() for entry in data.entries],
        "tokenizer": tokenizer.fingerprint
        if tokenizer
        else config.tokenizer.model_dump(exclude={"bpe_dropout", "file"}),
        "left out": inherited.scored.exact.tolist(),
        "known": inherited.fingerprint if splits_of(data.valid_sets, data.test) else "",
        "pieces": [data.pieces_before(corpus) for corpus in (*data.entries, *data.valid_sets)],
        "language pieces": data.language_pieces,
        "labels": data.all_labels,
        "pieces inside": data.pieces_inside,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _open(data: DataConfig, folder: Path) -> PreparedData | None:
    """Load a cache folder. If it is damaged, report it and return None."""
    try:
        facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
        train = EncodedPairs(sorted(folder.glob("train-*.arrow")))
        names = (entry.title for entry in data.entries)  # another name is no other data
        corpora = [CorpusCounts(**{**counts, "name": name}) for counts, name in zip(facts["corpora"], names)]
        sizes = [corpus.counts.get(drop_reasons.KEPT, 0) for corpus in corpora]
        if len(train) != sum(sizes):
            raise ValueError(f"{len(train):,} of its {sum(sizes):,} pairs are left")
        weights = effective_weights(
            [entry.weight for entry in data.entries], sizes, data.temperature, data.temperature_groups
        )
        return PreparedData(
            tokenizer=Tokenizer.load(folder),
            train=train,
            valid=[_open_validation(folder, i, corpus, data) for i, corpus in enumerate(data.valid_sets)],
            fingerprint=_with_weights(facts["fingerprint"], weights),
            corpora=corpora,
            weights=weights,
            several_sentences=facts["several_sentences"],
            held_out={
                split.name: _pairs(held_out_file(folder, split.name))
                for split in splits_of(data.valid_sets, data.test)
            },
            seen_file=_seen_file(folder),
        )
    except (OSError, ValueError, KeyError, TypeError, pyarrow.ArrowException) as error:
        # A file cut short is an OSError without a number; one that may not be read, or a broken disk, is no
        # reason to delete.
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):
            raise WorkError(
                f"{error.filename or folder}: the cache cannot be read: {error.strerror}; check the "
                "disk and the folder's permissions, or set TRANSFORMER_MT_CACHE to another folder"
            ) from None
        say(f"the cache {folder} is damaged ({error}); it is rebuilt")
        return None


def _seen_file(folder: Path) -> Path:
    if not (file := folder / _SEEN_FILE).is_file():
        raise ValueError(f"no {_SEEN_FILE}")
    return file


def _pairs(file: Path) -> list[Pair]:
    return [(src, tgt) for src, tgt in rows_of(file)]


def _open_validation(folder: Path, number: int, corpus: AnySet, data: DataConfig) -> ValidationSet:
    sentences = [(src, tuple(references)) for src, *references in rows_of(folder / f"valid-{number}.jsonl")]
    pairs = EncodedPairs([folder / f"valid-{number}.arrow"])
    languages, objective = data.languages_of(corpus), data.objective_of(corpus)
    return ValidationSet(corpus.title, pairs, sentences, corpus.tag, languages, objective)


def _with_weights(fingerprint: str, weights: Sequence[float]) -> str:
    """The fingerprint of the data. Other weights are other data: they change the order of an epoch."""
    if all(weight == 1.0 for weight in weights):
        return fingerprint
    return hashlib.sha256(json.dumps([fingerprint, *weights]).encode()).hexdigest()


def _announce(data: PreparedData, origin: str) -> PreparedData:
    say(f"training pairs ({origin}):\n{corpus_table(data.corpora, data.weights)}")
    return data


def _build(config: Config, folder: Path, tokenizer: Tokenizer | None, inherited: Sentences) -> PreparedData:
    """Make the cache folder, resuming what an interrupted process left in `.part`."""
    root, part = folder.parent, _part(folder)
    try:
        root.mkdir(parents=True, exist_ok=True)
        # One process leads at a time: the next may find here what it needs.
        with _lock(root, config, part):
            _remove_abandoned(root)
            if folder.is_dir():
                # Another process may have made it while this one waited.
                with messages_to(lambda text: None):  # damage was reported already
                    data = _open(config.data, folder)
                if data is not None:
                    return data
                shutil.rmtree(folder)
            part.mkdir(exist_ok=True)
            try:
                _prepare_into(config, part, tokenizer, inherited)
            except InputError:
                if not (
                    part / FIRST_PASS_FILE
                ).exists():  # what was encoded stays: a file out of reach may come back
                    shutil.rmtree(part, ignore_errors=True)
                raise
            if _key(config, tokenizer, inherited) != folder.name:
                shutil.rmtree(part, ignore_errors=True)
                raise InputError("the corpus must not change while it is read, but has changed; start again")
            part.rename(folder)
            shutil.rmtree(folder / FIRST_PASS_FOLDER)  # last: until here an interrupted run can resume
            if data := _open(config.data, folder):
                return data
            raise WorkError(f"{folder}: must read as it was written, but does not; check the disk")
    except (OSError, pyarrow.ArrowException) as error:
        raise WorkError(
            f"{root}: could not write the encoded data: {error}; free some space, or set "
            "TRANSFORMER_MT_CACHE to a folder that has it, and start again: it resumes from here"
        ) from None


def _lock(root: Path, config: Config, part: Path) -> FolderLock:
    """Lock the cache, waiting for another process if there is one, and helping it if it prepares the same."""
    helping = ExitStack()

    def wait() -> None:
        say(f"another process prepares data in {root}; waiting for it")
        helping.enter_context(ShardHelper(config, part))

    with helping:
        return wait_for_folder(root, wait)


def help_prepare(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> ShardHelper:
    """Within it, this process helps another that prepares the data of `config`."""
    return ShardHelper(config, _part(cache_root() / _key(config, tokenizer, inherited)))


def _part(folder: Path) -> Path:
    """Temporary folder in which the cache folder is made."""
    return folder.with_name(f"{folder.name}.part")


def _remove_abandoned(root: Path) -> None:
    """Remove unfinished folders that are older than a week."""
    for path in root.glob("*.part"):
        if time.time() - path.stat().st_mtime > 7 * 86_400:
            shutil.rmtree(path, ignore_errors=True)


def _prepare_into(config: Config, folder: Path, tokenizer: Tokenizer | None, inherited: Sentences) -> None:
    data = config.data
    for entry in data.entries:
        check_filter(data.filter_of(entry), data.languages_of(entry))
    for corpus in data.valid_sets:
        if not isinstance(corpus, FromTrainCorpus):
            say(f"reading {corpus.describe_access()} (validation)")
            validation_sentences(corpus, data, folder)  # before hours of work
    first, tokenizer = first_pass(config, folder, tokenizer, inherited)
    corpora, fingerprints = second_pass(config, folder, tokenizer, first)
    if not any(corpus.counts.get(drop_reasons.KEPT) for corpus in corpora):
        names = ", ".join(entry.title for entry in data.entries)
        raise InputError(f"{names}: no training pair is left after cleaning:\n{corpus_table(corpora)}")
    for number, corpus in enumerate(data.valid_sets):
        valid = validation_sentences(corpus, data, folder)
        pairs = ((src.strip(), reference.strip()) for src, references in valid for reference in references)
        arrow = folder / f"valid-{number}.arrow"
        before, before_tgt = data.pieces_before(corpus), data.target_piece(data.languages_of(corpus))
        has_labels = data.objective_of(corpus) == "classification"
        chunks = encoded_chunks(pairs, tokenizer, data, Counter(), before, before_tgt, has_labels)
        fingerprints.append(write_chunks(arrow, chunks, tokenizer.num_ids))
        fsync(arrow)
        write_text(arrow.with_suffix(".jsonl"), as_lines([src, *references] for src, references in valid))
    facts = {
        "fingerprint": hashlib.sha256("".join(fingerprints).encode()).hexdigest(),
        "corpora": [asdict(corpus) for corpus in corpora],
        "several_sentences": first.several_sentences,
    }
    SeenSentences(trained_sentences(folder)).write(folder / _SEEN_FILE)
    write_text(folder / "facts.json", json.dumps(facts))


def corpus_table(corpora: Sequence[CorpusCounts], weights: Sequence[float] = ()) -> str:
    """Kept and dropped pairs: one corpus by reason, several as a table."""
    if len(corpora) == 1:
        return drop_reasons.reason_table(Counter(corpora[0].counts))
    used = [reason for reason in drop_reasons.REASONS if any(corpus.counts.get(reason) for corpus in corpora)]
    names = [
        drop_reasons.READ,
        *(reason for reason in used if reason != drop_reasons.KEPT),
        drop_reasons.KEPT,
    ]
    rows = [
        [
            corpus.name,
            *(f"{corpus.counts.get(name, 0):,}" for name in names),
            f"{corpus.source_tokens:,}",
            f"{corpus.target_tokens:,}",
            *([f"{weights[number]:g}"] if weights else []),
        ]
        for number, corpus in enumerate(corpora)
    ]
    head = ["corpus", *names, "source tokens", "target tokens", *(["uses per epoch"] if weights else [])]
    return table(rows, head)
