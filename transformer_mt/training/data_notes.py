"""Notes for the user about the config that is trained and its validation sets."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from transformer_mt.config import Config, DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.augmentation import unchanged_by
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.preparation.training_pairs import training_pairs
from transformer_mt.data.vocabulary.composition import COMPOSE
from transformer_mt.data.vocabulary.lost_letters import lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import UNK
from transformer_mt.errors import InputError
from transformer_mt.text.pair import Pair

_ROWS = 2000
"""Pairs of a corpus that are looked at."""


def notes_on(written: Config, config: Config, data: PreparedData) -> Iterator[str]:
    """Notes on a resolved config, on what the user asked for, and on the prepared validation sets."""
    if config.train.monitor == "chrF" != written.train.monitor:
        yield (
            "note: the validation references have fewer than four of BLEU's tokens on average; "
            "train.monitor is chrF instead of BLEU"
        )
    is_given = bool(config.init_from or config.tokenizer.file)
    if config.tokenizer.normalization not in (COMPOSE, "identity") or (is_given and _has_unknown(data.train)):
        looked_at = [pair for entry in config.data.entries for pair in _pairs_of(entry, config.data)]
        yield from lost_letters_notes(data.tokenizer, looked_at, is_given)
    if config.data.augment.is_on:
        for entry in config.data.entries:
            looked_at = _pairs_of(entry, config.data)
            yield from unchanged_by(config.data.augment, looked_at, config.data.languages_of(entry))
    for valid in data.valid:
        pairs = sum(len(targets) for _, targets in valid.sentences)
        if len(valid.pairs) < pairs:
            yield (
                f"note: the validation loss uses {len(valid.pairs):,} of {pairs:,} pairs of {valid.name}; "
                "others have an empty side, or are longer than data.max_length or max_length_ratio allow"
            )


def _has_unknown(train: EncodedPairs) -> bool:
    rows = range(0, len(train), -(-len(train) // _ROWS) or 1)
    return any(UNK in train.src(row) or UNK in train.tgt(row) for row in rows)


def _pairs_of(entry: Corpus, settings: DataConfig) -> list[Pair]:
    """The first pairs of a corpus; none for classification, or if the corpus cannot be read."""
    if entry.objective == "classification":
        return []
    with suppress(InputError):  # the data come from the cache, and the corpus is out of reach now
        return list(islice(training_pairs(entry, settings), _ROWS))
    return []
