"""The data of a config: from the cache, or made.

The name of a cache folder is a hash of its inputs; what stands in it is complete when its manifest does.
"""

import errno
import gc
import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow

from transformer_mt.cache import cache_root
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.held_out import AnySet, held_out_file, rows_of, splits_of
from transformer_mt.corpora.kind import EvaluationSentence
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, Sentences
from transformer_mt.data.batches.batching import ChangingPairs
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.batches.mixture import Mixture, effective_weights, num_windows
from transformer_mt.data.batches.packing import RowShape
from transformer_mt.data.changes.build import training_rows
from transformer_mt.data.cleaning import drop_reasons
from transformer_mt.data.preparation.build import SEEN_FILE, Build, CorpusCounts, corpus_table
from transformer_mt.data.preparation.change_facts import change_facts, neighbours_of_set
from transformer_mt.data.preparation.encode_blocks import EncodedBlock, train_file
from transformer_mt.data.preparation.store import FACTS_FILE
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError
from transformer_mt.locks import wait_for_folder
from transformer_mt.messages import messages_to, say
from transformer_mt.settings.objective import Objective
from transformer_mt.text.pair import Pair

_CHECKED_AT_ONCE = 2**31
"""Bytes: their check takes two seconds."""
FORMAT = 11  # of the cache: raise it when a change in this package alters what is written


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
    blocks: list[EncodedBlock]
    """The parts of `train`, each of one corpus."""
    seen_file: Path
    """The record of the sentences of the training pairs."""
    links: EncodedPairs | None = None
    """For each training pair the source and the target positions of pieces that belong together."""

    @property
    def sizes(self) -> list[int]:
        """Kept pairs of each corpus: they follow one another in `train`."""
        return [corpus.counts.get(drop_reasons.KEPT, 0) for corpus in self.corpora]

    @property
    def longest(self) -> int:
        """The longest side of a training pair, EOS counted."""
        return max((block.longest for block in self.blocks), default=1)

    def shape(self, batch_tokens: int, longest: int) -> RowShape:
        """The shape of packed batches of so many tokens, for pairs that are never above `longest`."""
        src, tgt = (sum(side) for side in zip(*((of.source_tokens, of.target_tokens) for of in self.corpora)))
        return RowShape.of_totals(batch_tokens, src, tgt, longest)

    def mixture(self, config: Config) -> Mixture:
        """The rows of each epoch, in windows where they are many."""
        uses = [size * weight for size, weight in zip(self.sizes, self.weights)]
        counted = ((of.source_tokens + of.target_tokens) / 2 for of in self.corpora)
        tokens = sum(weight * count for weight, count in zip(self.weights, counted))
        budget = config.train.update_tokens or int(config.train.batch_tokens)
        windows = num_windows(sum(uses), tokens, config.data.window_pairs, budget)
        windows = min(windows, len(self.blocks))
        if windows == 1:
            return Mixture(self.sizes, self.weights, config.seed)
        weights = [self.weights[block.corpus] for block in self.blocks]
        return Mixture([block.rows for block in self.blocks], weights, config.seed, windows)

    def changing(self, config: Config, mixture: Mixture) -> ChangingPairs | None:
        """The training pairs as the config changes them, for epochs of this mixture."""
        if mixture.windows == 1:
            return training_rows(config, self.train, self.sizes, self.tokenizer, self.links)
        of_blocks = [config.data.entries[block.corpus] for block in self.blocks]
        sizes = [block.rows for block in self.blocks]
        return training_rows(config, self.train, sizes, self.tokenizer, self.links, of_blocks)


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
    if (data := _open(config.data, folder)) and (
        tokenizer is None or data.tokenizer.fingerprint == tokenizer.fingerprint
    ):
        return _announce(data, f"from the cache {folder}")
    if tokenizer is not None:
        folder = cache_root() / _key(config, tokenizer, inherited)
        if data := _open(config.data, folder):
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
    """Load a cache folder; None if it is not there or not complete. If it is damaged, that is reported."""
    if not (folder / FACTS_FILE).exists():
        return None
    try:
        facts = json.loads((folder / FACTS_FILE).read_text(encoding="utf-8"))
        blocks = [EncodedBlock(**block) for block in facts["blocks"]]
        train = _open_blocks(folder, blocks)
        names = (entry.title for entry in data.entries)  # another name is no other data
        corpora = [CorpusCounts(**{**counts, "name": name}) for counts, name in zip(facts["corpora"], names)]
        sizes = [corpus.counts.get(drop_reasons.KEPT, 0) for corpus in corpora]
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
            blocks=blocks,
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


def _open_blocks(folder: Path, blocks: Sequence[EncodedBlock]) -> EncodedPairs:
    """The training pairs. ValueError if a block is damaged; where reading all would take long, WorkError when
    the block is used.
    """
    paths = [folder / train_file(number) for number in range(len(blocks))]
    sizes = [path.stat().st_size for path in paths]

    def check(number: int) -> None:
        with paths[number].open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != blocks[number].sha256:
                raise ValueError(f"{paths[number].name} is not as it was written")

    def check_late(number: int) -> None:
        try:
            check(number)
        except (OSError, ValueError) as error:
            raise WorkError(f"{folder}: {error}; remove this folder, and start again") from None

    is_quick = sum(sizes) <= _CHECKED_AT_ONCE
    for number in range(len(blocks)) if is_quick else ():
        check(number)
    of_blocks = [block.rows for block in blocks]
    return EncodedPairs(paths, of_blocks) if is_quick else EncodedPairs(paths, of_blocks, check_late)


def _seen_file(folder: Path) -> Path:
    if not (file := folder / SEEN_FILE).is_file():
        raise ValueError(f"no {SEEN_FILE}")
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
    """Make the cache folder, or what is missing of it."""
    root, build = folder.parent, Build(config, folder, tokenizer, inherited)

    def check() -> None:
        if _key(config, tokenizer, inherited) != folder.name:
            raise InputError("the corpus must not change while it is read, but has changed; start again")

    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(root)
        _remove_damaged(config.data, folder)
        folder.mkdir(exist_ok=True)
        gc.freeze()  # Python would look for garbage in all that is imported, for a tenth of the time
        try:
            build.run(check)
        except InputError:
            if not any(folder.glob("train-*.json")):  # a file out of reach may come back
                shutil.rmtree(folder, ignore_errors=True)
            raise
        except FileNotFoundError:
            if not (folder / FACTS_FILE).exists():  # else another preparation has completed it meanwhile
                raise
        finally:
            gc.unfreeze()
        if data := _open(config.data, folder):
            build.clean_up()
            return data
        raise WorkError(f"{folder}: must read as it was written, but does not; check the disk")
    except (OSError, pyarrow.ArrowException) as error:
        raise WorkError(
            f"{root}: could not write the encoded data: {error}; free some space, or set "
            "TRANSFORMER_MT_CACHE to a folder that has it, and start again: it resumes from here"
        ) from None


def _remove_damaged(data: DataConfig, folder: Path) -> None:
    """Remove a folder that was complete and is damaged; another process may make it again meanwhile."""
    with wait_for_folder(folder.parent), messages_to(lambda text: None):  # damage was reported already
        if (folder / FACTS_FILE).exists() and _open(data, folder) is None:
            shutil.rmtree(folder)


def _remove_abandoned(root: Path) -> None:
    """Remove what unfinished preparations left more than a week ago."""
    for text in root.glob("*/text"):
        if time.time() - text.stat().st_mtime > 7 * 86_400 and not (text.parent / FACTS_FILE).exists():
            shutil.rmtree(text.parent, ignore_errors=True)
