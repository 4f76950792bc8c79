"""The two passes over the training corpora: the drop reason of each row with the vocabulary, then the ids.

Rows are numbered over all corpora, one after the other.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, compress, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from transformer_mt.config import Config, DataConfig
from transformer_mt.config.corpus import Corpus, FromTrainCorpus, Readable
from transformer_mt.data import cleaning
from transformer_mt.data.cleaning_rules import repaired, rules_of
from transformer_mt.data.corpus import Pair, UnknownSplitError, described_access, name_of, read_corpus
from transformer_mt.data.dataset import Chunk, write_chunks
from transformer_mt.data.drop_reasons import DropReasons, TrainingCorpus
from transformer_mt.data.encode import encoded_chunks
from transformer_mt.data.held_out import as_lines, held_out_file, source_key, splits_of
from transformer_mt.data.model_score import LogProbs, worst_rows
from transformer_mt.data.sentences import has_several_sentences
from transformer_mt.data.test_sets import TestSentence, describe_set, read_set
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import fsync, write_text
from transformer_mt.progress_bar import show_progress

TOKENIZER_PAIRS = 500_000  # evenly spaced over the corpora; more change the pieces little and take long
SENTENCE_PAIRS = 20_000  # evenly spaced: enough to say which share of the sources has several sentences
SHARD = 500_000  # rows; an interruption loses at most the work on one

SURVEYED = "survey.json"  # says that the first pass is done

Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Survey:
    """The result of the first pass."""

    reasons: np.ndarray
    """The drop reason of each row, as an index into cleaning.REASONS."""
    sizes: list[int]
    """Rows of each corpus."""
    several_sentences: float
    """Share of the training sources with more than one sentence."""


@dataclass
class CorpusCounts:
    """What became of the pairs of one training corpus."""

    name: str
    counts: dict[str, int]
    """Rows by drop reason, `read` and `kept` included."""
    source_tokens: int = 0
    """Pieces of the kept pairs, end-of-sentence counted."""
    target_tokens: int = 0


def first_pass(
    config: Config, folder: Path, say: Say, tokenizer: Tokenizer | None, log_probs: LogProbs
) -> tuple[Survey, Tokenizer]:
    """The drop reason of each row, the vocabulary learnt from those kept, and the sets held out of them. All
    are saved in the folder.
    """
    data, done = config.data, folder / SURVEYED
    splits = splits_of(data)
    held_out = held_out_keys(data, say)
    survey = DropReasons(folder / "survey", held_out, data.remove_duplicates, splits)
    if done.exists() and survey.reasons_file.exists():
        say("resuming the preparation of the data, which was interrupted")
        facts = json.loads(done.read_text(encoding="utf-8"))
        return Survey(survey.reasons(), facts["sizes"], facts["several_sentences"]), Tokenizer.load(folder)
    sample = _evenly_spaced(survey.walk(_corpora(data, say)), TOKENIZER_PAIRS)
    reasons = _without_worst(survey, survey.finish(), data, log_probs, say)
    fsync(survey.reasons_file)
    for split in splits:
        if not (pairs := split.pairs()):
            raise InputError(
                f"data.{split.name}.from_train must hold out at least one pair, but none has so small a "
                "hash; raise its share"
            )
        write_text(held_out_file(folder, split.name), as_lines(pairs))
    if tokenizer is None:
        names = ", ".join(name_of(entry) for entry in data.entries)
        say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} pieces from {names}")
        kept = cleaning.REASONS.index(cleaning.KEPT)
        learnt_from = [pair for row, pair in sample if reasons[row] == kept]
        if not learnt_from:
            raise InputError(
                f"{names}: no training pair is left after cleaning; every one is empty or held out"
            )
        tokenizer = Tokenizer.train(learnt_from, config.tokenizer, data.control_pieces)
    for piece in data.control_pieces:
        tokenizer.tag_id(piece)  # InputError now if a resumed vocabulary does not have it
    tokenizer.save(folder)
    sources = [src for _, (src, _) in sample[:: -(-len(sample) // SENTENCE_PAIRS) or 1]]
    several = sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))
    write_text(done, json.dumps({"sizes": survey.sizes, "several_sentences": several}))
    return Survey(reasons, survey.sizes, several), tokenizer


def _corpora(data: DataConfig, say: Say) -> Iterator[TrainingCorpus]:
    for entry in data.entries:
        say(f"reading {described_access(entry)} (training)")
        pairs = show_progress(training_pairs(entry, data), "reading", unit="pairs")
        rules = rules_of(data.filter_of(entry), data.languages_of(entry))
        target = data.languages_of(entry)[1] if len(data.targets) > 1 else ""
        yield TrainingCorpus(pairs, rules, not entry.tag, target)


def training_pairs(entry: Corpus, data: DataConfig) -> Iterator[Pair]:
    """The pairs of a training corpus after the repairs that its filter asks for, before any is dropped."""
    return repaired(read_corpus(entry, data), data.filter_of(entry), data.languages_of(entry))


def _without_worst(
    survey: DropReasons, reasons: np.ndarray, data: DataConfig, log_probs: LogProbs, say: Say
) -> np.ndarray:
    """The drop reasons after the rule `model_score`, which compares the kept pairs of a corpus."""
    starts = [0, *accumulate(survey.sizes)]
    for number, (entry, start, stop) in enumerate(zip(data.entries, starts, starts[1:])):
        settings = data.filter_of(entry).model_score
        if settings is None:
            continue
        is_kept = reasons[start:stop] == cleaning.REASONS.index(cleaning.KEPT)
        rows = start + np.flatnonzero(is_kept)
        say(
            f"scoring {len(rows):,} pairs of {name_of(entry)} with {settings.forward} and {settings.backward}"
        )
        pairs = ((src.strip(), tgt.strip()) for src, tgt in compress(training_pairs(entry, data), is_kept))
        shown = show_progress(pairs, "scoring", len(rows), unit="pairs")
        file = survey.reasons_file.with_name(f"scores-{number}.f32")
        reasons = survey.drop(
            worst_rows(rows, shown, data.languages_of(entry), settings, log_probs, file), cleaning.MODEL_SCORE
        )
    return reasons


def held_out_keys(data: DataConfig, say: Say) -> set[int]:
    """The source keys of the validation and test sets that are corpora of their own; with several directions
    also those of their targets.
    """
    keys: set[int] = set()
    both = len(data.directions) > 1  # the targets of one direction are the sources of another
    for corpus in (*data.valid_sets, *data.test):
        if isinstance(corpus, FromTrainCorpus):
            continue
        try:
            for src, tgt in read_corpus(corpus, data):
                keys |= {source_key(side) for side in ((src, tgt) if both else (src,)) if side.strip()}
        except UnknownSplitError as error:
            if any(corpus is each for each in data.valid_sets):
                raise
            # Training does not need it; `evaluate` will refuse.
            say(f"warning: test set left out of the leak check: {error}")
    return keys


def second_pass(
    config: Config, folder: Path, say: Say, tokenizer: Tokenizer, survey: Survey
) -> tuple[list[CorpusCounts], list[str]]:
    """Encode the kept rows, a shard of so many rows after the other; shards that are there stay. Returns the
    counts of each corpus and a fingerprint of each shard.
    """
    total = len(survey.reasons)
    marks = [folder / f"train-{i:05d}.json" for i in range(-(-total // SHARD))]
    done = next((i for i, mark in enumerate(marks) if not mark.exists()), len(marks))
    bar = show_progress(None, "encoding", total, done * SHARD, unit="pairs")
    readers: dict[int, Iterator[Pair]] = {}
    for i, mark in list(enumerate(marks))[done:]:
        first, last = i * SHARD, min((i + 1) * SHARD, total)
        counts: dict[int, CorpusCounts] = {}
        arrow = mark.with_suffix(".arrow")
        fingerprint = write_chunks(arrow, _shard(config, tokenizer, survey, (first, last), readers, counts))
        fsync(arrow)
        facts = {"fingerprint": fingerprint, "corpora": {n: asdict(each) for n, each in counts.items()}}
        write_text(mark, json.dumps(facts))
        bar.update(last - first)
        if len(marks) > 1:
            say(f"encoded {last:,} of {total:,} pairs")
    bar.close()
    return _sums(config.data, survey, marks), [_facts(mark)["fingerprint"] for mark in marks]


def _shard(
    config: Config,
    tokenizer: Tokenizer,
    survey: Survey,
    rows: tuple[int, int],
    readers: dict[int, Iterator[Pair]],
    counts: dict[int, CorpusCounts],
) -> Iterator[Chunk]:
    """The encoded rows from the first to before the last of `rows`, which may lie in several corpora; fills
    their counts. `readers` are the corpora being read: they continue where the shard before ended.
    """
    data, kept = config.data, cleaning.REASONS.index(cleaning.KEPT)
    starts = [0, *accumulate(survey.sizes)]
    for number, (entry, start, stop) in enumerate(zip(data.entries, starts, starts[1:])):
        begin, end = max(rows[0], start), min(rows[1], stop)
        if begin >= end:
            continue
        reasons = survey.reasons[begin:end]
        if number not in readers:
            readers[number] = islice(training_pairs(entry, data), begin - start, None)
        pairs = islice(readers[number], end - begin)
        wanted = ((src.strip(), tgt.strip()) for (src, tgt), reason in zip(pairs, reasons) if reason == kept)
        found: Counter[str] = Counter()
        mine = counts[number] = CorpusCounts(name_of(entry), {})
        for chunk in encoded_chunks(wanted, tokenizer, data, found, data.pieces_before(entry)):
            mine.source_tokens += len(chunk[0].values) + len(chunk[0].lengths)
            mine.target_tokens += len(chunk[1].values) + len(chunk[1].lengths)
            yield chunk
        mine.counts = dict(found)


def _sums(data: DataConfig, survey: Survey, marks: Sequence[Path]) -> list[CorpusCounts]:
    """The counts of each corpus over both passes and all shards."""
    found = []
    starts = [0, *accumulate(survey.sizes)]
    shards = [_facts(mark)["corpora"] for mark in marks]
    for number, (entry, start, stop) in enumerate(zip(data.entries, starts, starts[1:])):
        of_each = np.bincount(survey.reasons[start:stop], minlength=len(cleaning.REASONS))
        counts = Counter(dict(zip(cleaning.REASONS, of_each.tolist())))
        counts[cleaning.READ], counts[cleaning.KEPT] = stop - start, 0
        mine = CorpusCounts(name_of(entry), {})
        for shard in shards:
            if part := shard.get(str(number)):
                counts.update(part["counts"])
                mine.source_tokens += part["source_tokens"]
                mine.target_tokens += part["target_tokens"]
        mine.counts = dict(+counts)
        found.append(mine)
    return found


def _facts(mark: Path) -> dict:
    return json.loads(mark.read_text(encoding="utf-8"))


def validation_sentences(
    corpus: Readable | FromTrainCorpus, data: DataConfig, folder: Path
) -> list[TestSentence]:
    """A validation set as text, without empty sources and references. InputError if nothing is left."""
    kept = []
    for src, references in read_set(corpus, data, folder, "valid"):
        references = tuple(reference for reference in references if reference.strip())
        if src.strip() and references:
            kept.append((src, references))
    if not kept:
        raise InputError(
            f"{describe_set(corpus)}: the validation set must have sentence pairs, but all have an empty side"
        )
    return kept


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
