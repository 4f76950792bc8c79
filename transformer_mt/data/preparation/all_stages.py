"""The stages of a preparation in their order, and what is made of all blocks together.

Each stage writes whole files that depend on those before it and on the config alone. So an interrupted
preparation resumes at the first missing file, and processes that prepare the same data share the work.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import FromTrainCorpus, HeldOutSplit, as_lines, held_out_file, splits_of
from transformer_mt.corpora.seen_sentences import SeenSentences, Sentences
from transformer_mt.data.cleaning.cleaning_rules import KEPT, LONG, READ, REASONS, check_filter, reason_table
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
from transformer_mt.data.preparation.store import (
    FACTS_FILE,
    LocalEngine,
    LocalStore,
    PreparationEngine,
    PreparationStage,
    Store,
    run_stage,
)
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.markdown import table
from transformer_mt.messages import say
from transformer_mt.parts import load_part
from transformer_mt.text.lines import Pair

SEEN_FILE = "seen.safetensors"
_LEARNT = "learnt.json"
"""Says that the vocabulary is there."""


@dataclass
class CorpusCounts:
    """Counts of one training corpus: pairs kept and dropped, by reason."""

    name: str
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int = 0
    """Pieces of the kept pairs, end-of-sentence counted."""
    target_tokens: int = 0


class Build:
    """A preparation of the data of a config in a folder."""

    def __init__(
        self, config: Config, store: Store, folder: Path, tokenizer: Tokenizer | None, inherited: Sentences
    ) -> None:
        """The files are made in the `store`; `folder` is on this machine, and the same where it can be.
        Training rows with a source that an `inherited` model was scored by are left out, and what it was
        trained on is in no held-out set.
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
        with TemporaryDirectory(dir=self._folder, prefix=".") as temporary:
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
    """Copy what complete data have besides the pairs, and besides files whose names begin with `others`, from
    a store to a folder of this machine, unless the store is that folder.
    """
    if store.location == str(folder):
        return
    for name in sorted(store.sizes(""), key=lambda name: name == FACTS_FILE):  # the manifest last
        if not name.startswith(("train-", HeldOutRows.NAME, _LEARNT, *others)):
            store.fetch(name, folder / name)


def is_clean(store: Store) -> bool:
    """True if nothing is left that complete data do not need."""
    return not store.exists(HeldOutRows.NAME)


def clean_up(store: Store, folder: Path) -> None:
    """Remove what complete data do not need."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
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
