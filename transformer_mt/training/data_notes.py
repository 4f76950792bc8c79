"""Notes for the user about the config that is trained and its validation sets."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from transformer_mt.config import Config, DataConfig
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.cleaning.drop_reasons import EMPTY, LONG, RATIO, length_reason
from transformer_mt.data.preparation.first_pass import training_pairs
from transformer_mt.data.preparation.prepare import PreparedData, ValidationSet
from transformer_mt.data.vocabulary.composition import COMPOSE
from transformer_mt.data.vocabulary.lost_letters import lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.pair import Pair

_ROWS = 2000
"""Pairs of a corpus in which letters are looked for."""


def notes_on(written: Config, config: Config, data: PreparedData) -> Iterator[str]:
    """Notes on a resolved config, on what the user asked for, and on the prepared validation sets."""
    if config.train.monitor == "chrF" != written.train.monitor:
        yield (
            "note: the validation references have fewer than four of BLEU's tokens on average; "
            "train.monitor is chrF instead of BLEU"
        )
    is_given = bool(config.init_from or config.tokenizer.file)
    if config.tokenizer.normalization not in (COMPOSE, "identity") or (is_given and _has_unknown(data.train)):
        yield from lost_letters_notes(data.tokenizer, _pairs_of(config.data), is_given)
    for valid in data.valid:
        pairs = sum(len(targets) for _, targets in valid.sentences)
        if 2 * len(valid.pairs) <= pairs:
            yield (
                f"note: the validation loss can use {len(valid.pairs):,} of {pairs:,} pairs of {valid.name}: "
                f"{', '.join(_why_unused(valid, data.tokenizer, config.data))}"
            )


def _has_unknown(train: EncodedPairs) -> bool:
    rows = range(0, len(train), -(-len(train) // _ROWS) or 1)
    return any(UNK in train.src(row) or UNK in train.tgt(row) for row in rows)


def _pairs_of(settings: DataConfig) -> list[Pair]:
    """Pairs of each corpus that is translated or written again."""
    pairs: list[Pair] = []
    with suppress(InputError):  # the data come from the cache, and a corpus is out of reach now
        for entry in settings.entries:
            if entry.objective != "classification":
                pairs += islice(training_pairs(entry, settings), _ROWS)
    return pairs


def _why_unused(valid: ValidationSet, tokenizer: Tokenizer, data: DataConfig) -> Iterator[str]:
    """How many pairs each rule for lengths leaves out."""
    pairs = [(src, target) for src, targets in valid.sentences for target in targets]
    sides = tokenizer.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs])
    reasons = Counter(
        length_reason(len(src), len(tgt), data.max_length, data.max_length_ratio) for src, tgt in zip(*sides)
    )
    words = {
        LONG: f"are longer than data.max_length ({data.max_length})",
        RATIO: f"have a side longer than data.max_length_ratio ({data.max_length_ratio:g}) times the other",
        EMPTY: "have an empty side",
    }
    for reason, count in reasons.items():
        if reason is not None:
            yield f"{count:,} {words[reason]}"
