"""The changes of training rows, in their order."""

from collections.abc import Sequence

from transformer_mt.config import Config
from transformer_mt.corpora.kind import Corpus
from transformer_mt.data.batches.batching import ChangingPairs
from transformer_mt.data.batches.encoded_pairs import EncodedPairs
from transformer_mt.data.changes.augmentation import Augmentation
from transformer_mt.data.changes.bpe_dropout import BpeDropout
from transformer_mt.data.changes.change import Rows
from transformer_mt.data.changes.links import AlignedRows
from transformer_mt.data.changes.objectives import DecoderRows, EncoderRows
from transformer_mt.data.changes.terms import TermAnnotation
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.settings.objective import Objective


def training_rows(
    config: Config,
    pairs: EncodedPairs,
    sizes: Sequence[int],
    tokenizer: Tokenizer,
    facts: EncodedPairs | None = None,
    of_blocks: Sequence[Corpus] | None = None,
) -> ChangingPairs | None:
    """The training pairs as the config asks for; None where they are the same in all epochs. The text is
    changed first, then spelled in other pieces; objectives hide pieces as they are spelled.

    `sizes` are the pairs of each corpus; where an epoch is planned in windows, of each block, and `of_blocks`
    their corpora. `facts` are, where a change needs them, for each pair the source and the target positions
    of pieces that belong together, or of next sentences whether the next row follows.
    """
    data = config.data
    entries = data.entries if of_blocks is None else of_blocks
    rows = unchanged = Rows(pairs)
    if data.augment.is_on:
        corpora = list(zip(sizes, map(data.languages_of, entries)))
        rows = Augmentation(rows, tokenizer, data.augment, config.seed, data.max_length, corpora)
    if data.terms.share:
        rows = TermAnnotation(rows, config, list(zip(sizes, entries)), tokenizer, facts)
    if config.tokenizer.bpe_dropout:
        dropout = config.tokenizer.bpe_dropout
        is_changed = rows is not unchanged or of_blocks is not None
        rows = BpeDropout(rows, tokenizer, dropout, config.seed, data.max_length, is_changed)
    objectives = [entry.objective for entry in entries]
    rows = with_objectives(config, rows, sizes, objectives, tokenizer, facts)
    if facts is not None and config.train.guided_alignment.weight:
        rows = AlignedRows(rows, facts, tokenizer)
    return None if rows is unchanged else rows


def held_out_rows(
    config: Config,
    pairs: EncodedPairs,
    objective: Objective,
    tokenizer: Tokenizer,
    facts: EncodedPairs | None = None,
) -> ChangingPairs | None:
    """The pairs of a validation or test set: noise and masks are the same for every seed."""
    unchanged, same = Rows(pairs), config.model_copy(update={"seed": 0})
    rows = with_objectives(same, unchanged, [len(pairs)], [objective], tokenizer, facts)
    return None if rows is unchanged else rows


def with_objectives(
    config: Config,
    rows: Rows,
    sizes: Sequence[int],
    objectives: Sequence[Objective],
    tokenizer: Tokenizer,
    facts: EncodedPairs | None = None,
) -> Rows:
    """The rows of corpora of these sizes as their objectives need them."""
    if config.model.kind == "encoder":
        return EncoderRows(rows, config, sizes, objectives, tokenizer, facts)
    if all(objective == "translation" for objective in objectives):
        return rows
    return DecoderRows(rows, config, sizes, objectives, tokenizer)
