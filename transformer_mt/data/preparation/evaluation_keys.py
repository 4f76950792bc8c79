"""The validation and test sets: their text, and the sentences that training pairs must not have."""

from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.evaluation_sets import read_set
from transformer_mt.corpora.held_out import AnySet, FromTrainCorpus
from transformer_mt.corpora.hub import UnknownSplitError
from transformer_mt.errors import InputError
from transformer_mt.messages import say, say_once
from transformer_mt.text.hashes import sentence_key


@dataclass(frozen=True)
class EvaluationKeys:
    """Keys of sentences that training pairs must not have."""

    sources: set[int]
    """Sources of the validation and test sets that are corpora of their own; with several directions also
    their targets, which another one reads.
    """
    targets: set[int]
    """Their targets, for pairs whose source is elsewhere."""
    inherited: frozenset[int] = frozenset()
    """Sentences by which the models that the training begins from were scored."""


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
    """A validation set as text, without empty sources and references; and for each pair in the order of
    reading whether no side is empty, with a False also where other rows stood between. InputError if nothing
    is left.
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
