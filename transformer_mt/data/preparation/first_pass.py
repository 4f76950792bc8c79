"""The first pass over the training corpora: the drop reason of each row, and the vocabulary.

Rows are numbered over all corpora, one after the other. The second pass is in `second_pass.py`.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.evaluation_sets import read_set
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus, as_lines, held_out_file, splits_of
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.corpora.kind import Corpus, EvaluationSentence
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.cleaning import drop_reasons
from transformer_mt.data.cleaning.reason_file import ReasonFile, TrainingCorpus, read_reasons
from transformer_mt.data.cleaning.rules import repaired, rules_of
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import fsync, write_text
from transformer_mt.messages import say, say_once
from transformer_mt.progress_bar import show_progress
from transformer_mt.text.hashes import sentence_key
from transformer_mt.text.pair import Pair
from transformer_mt.text.sentences import has_several_sentences

TOKENIZER_PAIRS = 500_000  # evenly spaced over the corpora; more change the pieces little and take long
SENTENCE_PAIRS = 20_000  # evenly spaced: enough to say which share of the sources has several sentences

FIRST_PASS_FOLDER = "first_pass"
FIRST_PASS_FILE = "first_pass.json"  # says that it is done

T = TypeVar("T")


@dataclass(frozen=True)
class FirstPassResult:
    """The result of the first pass."""

    reasons: np.ndarray
    """The drop reason of each row, as an index into drop_reasons.REASONS."""
    sizes: list[int]
    """Rows of each corpus."""
    several_sentences: float
    """Share of the training sources with more than one sentence."""


def read_first_pass(folder: Path) -> FirstPassResult | None:
    """The results of the first pass in the folder; None unless it is done."""
    try:
        facts = json.loads((folder / FIRST_PASS_FILE).read_text(encoding="utf-8"))
        reasons = read_reasons(folder / FIRST_PASS_FOLDER)
    except FileNotFoundError:
        return None
    return FirstPassResult(reasons, facts["sizes"], facts["several_sentences"])


def first_pass(
    config: Config, folder: Path, tokenizer: Tokenizer | None, inherited: Sentences
) -> tuple[FirstPassResult, Tokenizer]:
    """The drop reason of each row, the vocabulary learnt from those kept, and the sets held out of them. All
    are saved in the folder. What the model that the training begins from was scored by is left out, and what
    it was trained on is in no set.
    """
    data = config.data
    if (done := read_first_pass(folder)) is not None:
        say("resuming the preparation of the data, which was interrupted")
        return done, Tokenizer.load(folder)
    if tokenizer is None:
        _check_tags(data)

    def is_known(pair: Pair) -> bool:
        return bool(inherited.knows([(pair[0], (pair[1],))])[0])

    splits = splits_of(data.valid_sets, data.test, is_known)
    held_out, left_out = evaluation_keys(data), frozenset(inherited.scored.exact.tolist())
    row_reasons = ReasonFile(
        folder / FIRST_PASS_FOLDER,
        held_out.sources,
        data.remove_duplicates,
        splits,
        left_out,
        has_lone_sides=any(lone_side(entry) is not None for entry in data.entries),
    )
    sample = _evenly_spaced(row_reasons.walk(_corpora(data, held_out.targets | left_out)), TOKENIZER_PAIRS)
    reasons = row_reasons.finish()
    for split in splits:
        if not (pairs := split.pairs()):
            if not any(_may_be_scored(entry, data) for entry in data.entries):
                raise InputError(
                    f"data.{split.name}.from_train must have a training corpus of {data.main_objective} "
                    "without tag that is not synthetic, but there is none; name a file"
                )
            if not inherited.is_empty:
                raise InputError(
                    f"data.{split.name}.from_train must hold out a pair that is new to the models that this "
                    "training starts from, but has none; name a file of other pairs"
                )
            raise InputError(
                f"data.{split.name}.from_train must hold out at least one pair, but no hash is small "
                "enough; raise its share"
            )
        write_text(held_out_file(folder, split.name), as_lines(pairs))
    fsync(row_reasons.reasons_file)
    starts = list(accumulate(row_reasons.sizes))

    def entry_of(row: int) -> Corpus:
        return data.entries[bisect_right(starts, row)]

    if tokenizer is None:
        once = config.tokenizer.shared  # both sides of plain text are the same
        names = ", ".join(entry.title for entry in data.entries)
        say(f"learning {config.tokenizer.vocab_size:,} {config.tokenizer.kind} tokens from {names}")
        kept = drop_reasons.REASONS.index(drop_reasons.KEPT)
        learnt_from = [
            (pair[0], "") if once and entry_of(row).is_text else pair
            for row, pair in sample
            if reasons[row] == kept
        ]
        if not learnt_from:
            raise InputError(f"{names}: no training pair is left after cleaning; all are empty or held out")
        tokenizer = Tokenizer.train(learnt_from, config.tokenizer, data.control_pieces)
    for piece in data.control_pieces:
        tokenizer.control_id(piece)  # InputError now if a resumed vocabulary does not have it
    tokenizer.save(folder)
    sources = [src for row, (src, _) in sample if not (data.directions and entry_of(row).is_text)]
    sources = sources[:: -(-len(sources) // SENTENCE_PAIRS) or 1]
    several = sum(has_several_sentences(src, data.source_lang) for src in sources) / max(1, len(sources))
    write_text(
        folder / FIRST_PASS_FILE, json.dumps({"sizes": row_reasons.sizes, "several_sentences": several})
    )
    return FirstPassResult(reasons, row_reasons.sizes, several), tokenizer


def _corpora(data: DataConfig, held_out_targets: set[int]) -> Iterator[TrainingCorpus]:
    is_split = any(corpus.is_held_out for corpus in (*data.valid_sets, *data.test))
    for entry in data.entries:
        say(f"reading {entry.describe_access()} (training)")
        pairs = show_progress(training_pairs(entry, data), "reading", unit="pairs")
        rules = rules_of(data.filter_of(entry), data.languages_of(entry))
        if entry.is_text:
            rules = [rule for rule in rules if rule.reason != drop_reasons.COPY]
        target = data.languages_of(entry)[1] if len(data.targets) > 1 else ""
        if entry.is_text and len(data.objectives) > 1:
            target += entry.objective  # the same text may be learned from in several ways
        targets = frozenset() if lone_side(entry) is None else held_out_targets
        is_side = entry.is_text and entry.has_both_sides and is_split
        # As training on these pairs reads them: repaired, and reversed.
        whole = training_pairs(entry.as_translations(), data) if is_side else None
        pair_sources = None if whole is None else (src for src, _ in whole)
        yield TrainingCorpus(
            pairs, rules, _may_be_scored(entry, data), target, targets, lone_side(entry), pair_sources
        )


def lone_side(entry: Corpus) -> Literal[0, 1] | None:
    """The side of a corpus that may be the target of a pair whose source is elsewhere."""
    # The source of back-translated text is new, its target may be a reference; a label is none.
    is_translated = entry.synthetic and entry.objective == "translation"
    return 0 if entry.is_text else 1 if is_translated else None


def _may_be_scored(entry: Corpus, data: DataConfig) -> bool:
    """True if pairs of a training corpus may be held out as a validation or test set."""
    if data.objective_of(entry) != data.main_objective or entry.tag or entry.synthetic:
        return False
    if data.language_pieces == "both" and entry.objective == "translation":
        return data.languages_of(entry) == data.languages  # a set is of one direction
    if not data.directions and len(data.targets) > 1:  # a held-out set is of one language
        return entry.language == data.target_lang
    return True


def _check_tags(data: DataConfig) -> None:
    """InputError for tags that a new vocabulary cannot have: SentencePiece divides the words of the text at
    them.
    """
    for entry in data.entries:
        if entry.tag is not None and (entry.tag.isalnum() or entry.tag in ("<s>", "</s>", "<pad>", "<unk>")):
            raise InputError(
                f"the `tag` of {entry.title} must not be <s>, </s>, <pad>, <unk> or only letters and "
                f"digits, but is {entry.tag}; choose one such as <bt>"
            )


def training_pairs(entry: Corpus, data: DataConfig) -> Iterator[Pair]:
    """The pairs of a training corpus after the repairs that its filter asks for, before any is dropped."""
    return repaired(entry.read(data.languages), data.filter_of(entry), data.languages_of(entry))


@dataclass(frozen=True)
class EvaluationKeys:
    """Keys of the validation and test sets that are corpora of their own."""

    sources: set[int]
    """Keys of their sources; with several directions also of their targets, which another one reads."""
    targets: set[int]


def evaluation_keys(data: DataConfig) -> EvaluationKeys:
    """The sentences that training pairs must not have."""
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
            # Training does not need it; `evaluate` will refuse.
            say(f"warning: test set left out of the leak check: {error}")
    if len(data.directions) > 1:
        both = keys.sources | keys.targets
        return EvaluationKeys(both, both)
    return keys


def validation_sentences(corpus: AnySet, data: DataConfig, folder: Path) -> list[EvaluationSentence]:
    """A validation set as text, without empty sources and references. InputError if nothing is left."""
    kept, read = [], 0
    for src, references in read_set(corpus, data.languages, folder, "valid"):
        read += 1
        references = tuple(reference for reference in references if reference.strip())
        if src.strip() and references:
            kept.append((src, references))
    if not kept:
        raise InputError(
            f"{corpus.describe()}: the validation set must have sentence pairs, but all have an empty side"
        )
    if len(kept) < read:
        say_once(f"note: {corpus.describe()}: {read - len(kept):,} of {read:,} pairs have an empty side")
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
