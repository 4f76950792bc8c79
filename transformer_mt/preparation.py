"""Turns corpora into cached ids; the file follows the order of the work. The data of a config come from the
cache, or are made stage by stage (`Build`): blocks of text, drop reasons, duplicates, a vocabulary, encoded
blocks.

The name of a cache folder is a hash of its inputs. Its data are complete once the manifest is there.
"""

import gc
import hashlib
import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow

from transformer_mt.companion import hooks
from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import FromTrainCorpus, HeldOutSplit, as_lines, held_out_file, splits_of
from transformer_mt.corpora.seen_sentences import NOTHING_SEEN, SeenSentences, Sentences
from transformer_mt.data.cleaning_rules import KEPT, LONG, READ, REASONS, check_filter, reason_table
from transformer_mt.data.preparation.clean import (
    Clean,
    Duplicates,
    HeldOutRows,
    Reasons,
    Split,
    TextBlocks,
    check_tags,
    evaluation_keys,
    may_be_scored,
    validation_sentences,
)
from transformer_mt.data.preparation.encode_blocks import (
    EncodeBlocks,
    EncodedBlock,
    Sample,
    encoded_chunks,
    file_of,
    learnt_tokenizer,
    several_sentences,
)
from transformer_mt.data.preparation.prepared_data import SEEN_FILE, CorpusCounts, PreparedData, open_data
from transformer_mt.data.preparation.store import (
    FACTS_FILE,
    LocalEngine,
    LocalStore,
    PreparationEngine,
    PreparationStage,
    Store,
    run_stage,
    store_at,
)
from transformer_mt.data.preparation.training_links import with_links
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, WorkError, advice_on
from transformer_mt.files import cache_root, wait_for_folder
from transformer_mt.messages import messages_to, say, table
from transformer_mt.parts import load_part
from transformer_mt.text.lines import Pair

_WEEK = 7 * 86_400  # seconds
FORMAT = 13  # cache format: raise it when a change in this package alters the files


def prepare(
    config: Config, tokenizer: Tokenizer | None = None, inherited: Sentences = NOTHING_SEEN
) -> PreparedData:
    """The data of `config`, from the cache if they are there. `tokenizer` is the vocabulary; without it, one
    is learnt. `inherited` holds the sentences of the models that the training starts from. Training pairs are
    dropped if such a model was scored on their source, or if the source is in a validation or test set.
    Sentences that such a model was trained on are not held out.
    """
    return with_links(config, _prepared(config, tokenizer, inherited))


def _prepared(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> PreparedData:
    """Open or build the data, without word alignments."""
    for prepared_elsewhere in hooks("prepared_data"):
        if (data := prepared_elsewhere(config, tokenizer, inherited)) is not None:
            return _announce(data, f"from {data.location}")
    folder, store = _place(config, data_key(config, None, inherited))
    if (data := _opened(config, folder, store)) and (
        tokenizer is None or data.tokenizer.fingerprint == tokenizer.fingerprint
    ):
        return _announce(data, f"from the cache {folder}")
    if tokenizer is not None:
        folder, store = _place(config, data_key(config, tokenizer, inherited))
        if data := _opened(config, folder, store):
            return _announce(data, f"from the cache {folder}")
    return _announce(_build(config, folder, store, tokenizer, inherited), f"cached in {folder}")


def _place(config: Config, key: str) -> tuple[Path, Store]:
    """The local folder for prepared data, and their store, which is that folder or a remote one."""
    chosen = config.data.preparation.folder
    store = store_at(f"{(chosen or str(cache_root())).rstrip('/')}/{key}")
    return Path(store.location) if isinstance(store, LocalStore) else cache_root() / key, store


def _opened(config: Config, folder: Path, store: Store) -> PreparedData | None:
    """Open the data, after copying them from the store if needed. None if they are missing or damaged."""
    if not (folder / FACTS_FILE).exists() and store.exists(FACTS_FILE):
        folder.mkdir(parents=True, exist_ok=True)
        mirror(store, folder)
    data = open_data(config.data, folder, store)
    if data is not None and not is_clean(store):
        clean_up(store, folder)
    return data


def data_key(config: Config, tokenizer: Tokenizer | None, inherited: Sentences) -> str:
    """A hash of all that prepared data depend on."""
    data = config.data
    facts = {
        "format": FORMAT,
        "languages": [data.source_lang, data.target_lang],
        "train": [entry.identity() for entry in data.entries],
        "valid": [corpus.identity() for corpus in data.valid_sets],
        "test": [corpus.identity() for corpus in data.test],
        "cleaning": [data.max_length, data.max_length_ratio, data.remove_duplicates],
        "left out targets": data.leaves_out_targets,
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


def _announce(data: PreparedData, origin: str) -> PreparedData:
    say(f"training pairs ({origin}):\n{corpus_table(data.corpora, data.weights)}")
    return data


def _build(
    config: Config, folder: Path, store: Store, tokenizer: Tokenizer | None, inherited: Sentences
) -> PreparedData:
    """Build the data, or resume a preparation that was interrupted."""
    build = Build(config, store, folder, tokenizer, inherited)

    def discard() -> None:
        clean_up(store, folder)
        shutil.rmtree(folder, ignore_errors=True)

    def check() -> None:
        if data_key(config, tokenizer, inherited) != folder.name:
            discard()
            raise InputError("the corpus must not change while it is read, but has changed; start again")

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned()
        _remove_damaged(config.data, folder, store)
        folder.mkdir(exist_ok=True)
        gc.freeze()  # garbage collection of imported modules would take a tenth of the time
        try:
            build.run(check)
        except InputError:
            if not any(name.endswith(".json") for name in store.sizes("text")):
                discard()  # else keep the text that was read: the unreadable file may come back
            raise
        except FileNotFoundError:
            if not store.exists(FACTS_FILE):  # else another preparation has completed it meanwhile
                raise
        finally:
            gc.unfreeze()
        if data := _opened(config, folder, store):
            clean_up(store, folder)  # this process may have written files after another one cleaned up
            return data
        raise WorkError(f"{folder}: the data just written cannot be read back; check the disk")
    except (OSError, pyarrow.ArrowException) as error:
        where, file = store.location.rpartition("/")[0], getattr(error, "filename", None)
        if file is not None and not Path(str(file)).is_relative_to(folder.parent):
            raise  # a file elsewhere, such as a corpus, which the error names
        raise WorkError(
            f"{where}: could not write the encoded data: {error}; {advice_on(error)}, or set "
            "TRANSFORMER_MT_CACHE or data.preparation.folder to another folder, and start again: it resumes "
            "from here"
        ) from None


def _remove_damaged(data: DataConfig, folder: Path, store: Store) -> None:
    """Remove complete but damaged data. Checks under the lock: another process may have rebuilt them."""
    if not (folder / FACTS_FILE).exists():
        return
    with wait_for_folder(folder.parent), messages_to(lambda text: None):  # damage was reported already
        if (folder / FACTS_FILE).exists() and open_data(data, folder, store) is None:
            shutil.rmtree(folder)


def _remove_abandoned() -> None:
    """Remove unfinished preparations from the cache that are more than a week old."""
    for folder in cache_root().glob("*"):
        with suppress(OSError):
            if not re.fullmatch("[0-9a-f]{24}", folder.name) or (folder / FACTS_FILE).exists():
                continue
            if max(path.stat().st_mtime for path in (folder, *folder.iterdir())) < time.time() - _WEEK:
                shutil.rmtree(folder)


_LEARNT = "learnt.json"
"""Says that the vocabulary is there."""


class Build:
    """A preparation of the data of a config in a folder."""

    def __init__(
        self, config: Config, store: Store, folder: Path, tokenizer: Tokenizer | None, inherited: Sentences
    ) -> None:
        """The files are made in the `store`. `folder` is on this machine; with a local store it is the folder
        of the store. `tokenizer` and `inherited` are as in `prepare`.
        """
        self._config, self._tokenizer, self._inherited = config, tokenizer, inherited
        self._folder, self._store = folder, store
        self._engine: PreparationEngine = LocalEngine()

    def run(self, check: Callable[[], None]) -> None:
        """Do what is not done yet; `check` raises InputError if the corpora have changed since it began."""
        self._engine = load_part("preparation_engine", self._config.data.preparation.engine)()
        try:
            self._run_stages(check)
        finally:
            self._engine.close()

    def _run_stages(self, check: Callable[[], None]) -> None:
        data, store = self._config.data, self._store
        if self._tokenizer is None:
            check_tags(data)
        for entry in data.entries:
            check_filter(data.filter_of(entry), data.languages_of(entry))
        sets = enumerate(data.valid_sets)  # read first: their errors must not come after hours of work
        valid = {n: self._validation(n) for n, of in sets if not isinstance(of, FromTrainCorpus)}
        scored = frozenset(self._inherited.scored.exact.tolist())
        left_out = replace(evaluation_keys(data), inherited=scored)
        if store.exists(Split(data, store).result(0)):
            say("resuming a preparation of the data that was begun before")
        self._run_stage(Split(data, store))
        check()
        text = TextBlocks(data, store)
        with_rows = {text.corpus(block) for block in range(len(text))}
        for number, entry in enumerate(data.entries):
            if number not in with_rows:
                raise InputError(f"{entry.title}: a corpus must have sentence pairs, but is empty")
        self._run_stage(clean := Clean(data, text, left_out, store))
        if not store.exists(HeldOutRows.NAME):
            self._write_held_out_sets(HeldOutRows(clean, text, store))
        if data.remove_duplicates:
            self._run_stage(Duplicates(clean, text, store))
        reasons = Reasons(clean, text, store, bool(data.remove_duplicates))
        if not store.exists(_LEARNT):
            self._learn(Sample(clean, text, reasons, store))
        mirror(store, self._folder)
        tokenizer = Tokenizer.load(self._folder)
        self._run_stage(encode := EncodeBlocks(data, text, reasons, tokenizer, store))
        blocks = [encode.block(number) for number in range(len(text))]
        corpora = _sums(data, blocks)
        if not any(block.rows for block in blocks):
            names = ", ".join(entry.title for entry in data.entries)
            is_long = sum(corpus.counts.get(LONG, 0) for corpus in corpora)
            hint = f"; raise data.max_length ({data.max_length})" if is_long else ""
            raise InputError(
                f"{names}: no training pair is left after cleaning{hint}:\n{corpus_table(corpora)}"
            )
        fingerprints = [block.fingerprint for block in blocks]
        for number in range(len(data.valid_sets)):
            fingerprints.append(self.encode_validation(number, valid.get(number), tokenizer))
        SeenSentences(encode.trained_sentences()).write(self._folder / SEEN_FILE)
        if not isinstance(store, LocalStore):
            store.write(SEEN_FILE, (self._folder / SEEN_FILE).read_bytes())
        several = json.loads(store.read(_LEARNT))["several_sentences"]
        self.write_manifest(fingerprints, blocks, several)

    def write_manifest(self, fingerprints: list[str], blocks: list[EncodedBlock], several: float) -> None:
        """Write the manifest: the data are complete."""
        facts = {
            "fingerprint": hashlib.sha256("".join(fingerprints).encode()).hexdigest(),
            "corpora": [asdict(corpus) for corpus in _sums(self._config.data, blocks)],
            "several_sentences": several,
            "languages": [self._config.data.source_lang, self._config.data.target_lang],
            "blocks": [asdict(block) for block in blocks],
        }
        self._store.write(FACTS_FILE, json.dumps(facts).encode())

    def _run_stage(self, stage: PreparationStage) -> None:
        run_stage(stage, self._engine, self._store)

    def _validation(self, number: int) -> tuple[list[EvaluationSentence], list[bool]]:
        corpus = self._config.data.valid_sets[number]
        if not isinstance(corpus, FromTrainCorpus):
            say(f"reading {corpus.describe_access()} (validation)")
        return validation_sentences(corpus, self._config.data, self._folder)

    def _write_held_out_sets(self, rows: HeldOutRows) -> None:
        def is_known(pair: Pair) -> bool:
            return bool(self._inherited.knows([(pair[0], (pair[1],))])[0])

        data = self._config.data
        held_out = rows.find(splits := splits_of(data.valid_sets, data.test, is_known))
        for split in splits:
            name = held_out_file(self._folder, split.name).name
            self._store.write(name, as_lines(self._pairs_of(split)).encode())
        rows.write(held_out)

    def _pairs_of(self, split: HeldOutSplit) -> list[Pair]:
        if pairs := split.pairs():
            return pairs
        data, key = self._config.data, f"data.{split.name}.from_train"
        if not any(may_be_scored(entry, data) for entry in data.entries):
            raise InputError(
                f"{key} must have a training corpus of {data.main_objective} without tag that is not "
                "synthetic, but there is none; name a file"
            )
        if not self._inherited.is_empty:
            raise InputError(
                f"{key} must hold out a pair that is new to the models that this training starts from, "
                "but has none; name a file of other pairs"
            )
        raise InputError(
            f"{key} must hold out at least one pair, but no hash is small enough; raise its share"
        )

    def _learn(self, sample: Sample) -> None:
        self._run_stage(sample)
        sampled = sample.blocks()
        tokenizer = self._tokenizer or learnt_tokenizer(self._config, sampled)
        for piece in self._config.data.control_pieces:
            tokenizer.control_id(piece)  # InputError now if a resumed vocabulary does not have it
        # `clean_up` removes what a kill leaves of it.
        with TemporaryDirectory(
            dir=self._folder, prefix=".", suffix=".tmp", ignore_cleanup_errors=True
        ) as temporary:
            tokenizer.save(Path(temporary))
            for file in Path(temporary).iterdir():
                self._store.write(file.name, file.read_bytes())
        facts = {"several_sentences": several_sentences(self._config, sampled)}
        self._store.write(_LEARNT, json.dumps(facts).encode())

    def encode_validation(
        self, number: int, valid: tuple[list[EvaluationSentence], list[bool]] | None, tokenizer: Tokenizer
    ) -> str:
        """Write a validation set; returns a fingerprint of its ids."""
        data, corpus = self._config.data, self._config.data.valid_sets[number]
        sentences, is_filled = valid or self._validation(number)
        pairs = ((src.strip(), tgt.strip()) for src, references in sentences for tgt in references)
        chunks, reasons = zip(*encoded_chunks(pairs, tokenizer, data, corpus))
        is_kept = np.array(is_filled)
        is_kept[is_kept] = np.concatenate(reasons) == REASONS.index(KEPT)
        content, fingerprint = file_of(chunks, tokenizer, data, corpus, is_kept)
        self._store.write(f"valid-{number}.arrow", content)
        lines = as_lines([src, *references] for src, references in sentences)
        self._store.write(f"valid-{number}.jsonl", lines.encode())
        return fingerprint


def mirror(store: Store, folder: Path, *others: str) -> None:
    """Copy the files of complete data from a store to a folder of this machine, unless the store is that
    folder. The training pairs, and files whose names begin with one of `others`, are not copied.
    """
    if store.location == str(folder):
        return
    for name in sorted(store.sizes(""), key=lambda name: name == FACTS_FILE):  # the manifest last
        if not name.startswith(("train-", HeldOutRows.NAME, _LEARNT, *others)):
            store.fetch(name, folder / name)


def is_clean(store: Store) -> bool:
    """True if the files that only the preparation needs have been removed."""
    return not store.exists(HeldOutRows.NAME)


def clean_up(store: Store, folder: Path) -> None:
    """Remove the files that only the preparation needs."""
    for path in folder.glob(".*.tmp"):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    marks = [name for name in store.sizes("") if re.fullmatch(r"train-\d+\.json", name)]
    for name in ("text", "clean", "duplicates", "sample", "seen", *marks, _LEARNT, HeldOutRows.NAME):
        store.remove(name)


def _sums(data: DataConfig, blocks: Sequence[EncodedBlock]) -> list[CorpusCounts]:
    """Sum the counts of the blocks of each corpus."""
    corpora = [CorpusCounts(entry.title, {}) for entry in data.entries]
    for block in blocks:
        corpus = corpora[block.corpus]
        corpus.counts = dict(Counter(corpus.counts) + Counter(block.counts))
        corpus.source_tokens += block.source_tokens
        corpus.target_tokens += block.target_tokens
    return corpora


def corpus_table(corpora: Sequence[CorpusCounts], weights: Sequence[float] = ()) -> str:
    """Kept and dropped pairs: one corpus by reason, several as a table."""
    if len(corpora) == 1:
        return reason_table(Counter(corpora[0].counts))
    used = [reason for reason in REASONS if any(corpus.counts.get(reason) for corpus in corpora)]
    names = [READ, *(of for of in used if of != KEPT), KEPT]
    rows = []
    for number, corpus in enumerate(corpora):
        counts = [*(corpus.counts.get(name, 0) for name in names), corpus.source_tokens, corpus.target_tokens]
        uses = [f"{weights[number]:g}"] if weights else []
        rows.append([corpus.name, *(f"{count:,}" for count in counts), *uses])
    head = ["corpus", *names, "source tokens", "target tokens", *(["uses per epoch"] if weights else [])]
    return table(rows, head)
