"""The pairs of training corpora as training reads them."""

from collections.abc import Iterator
from typing import Literal

from transformer_mt.config import DataConfig
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.cleaning.cleaning_rules import repaired
from transformer_mt.errors import InputError
from transformer_mt.text.pair import Pair


def training_pairs(entry: Corpus, data: DataConfig) -> Iterator[Pair]:
    """The pairs of a training corpus after the repairs that its filter asks for, before any is dropped."""
    return repaired(entry.read(data.languages), data.filter_of(entry), data.languages_of(entry))


def lone_side(entry: Corpus) -> Literal[0, 1] | None:
    """The side of a corpus that may be the target of a pair whose source is elsewhere."""
    # A back-translated pair has a new source, but its target may be a held-out reference. Labels never are.
    is_translated = entry.synthetic and entry.objective == "translation"
    return 0 if entry.is_text else 1 if is_translated else None


def may_be_scored(entry: Corpus, data: DataConfig) -> bool:
    """True if pairs of a training corpus may be held out as a validation or test set."""
    if data.objective_of(entry) != data.main_objective or entry.tag or entry.synthetic:
        return False
    if data.language_pieces == "both" and entry.objective == "translation":
        return data.languages_of(entry) == data.languages  # a set is of one direction
    if not data.directions and len(data.targets) > 1:  # a held-out set is of one language
        return entry.language == data.target_lang
    return True


def check_tags(data: DataConfig) -> None:
    """InputError for tags that a new vocabulary cannot have: SentencePiece divides the words of the text at
    them.
    """
    for entry in data.entries:
        if entry.tag is not None and (entry.tag.isalnum() or entry.tag in ("<s>", "</s>", "<pad>", "<unk>")):
            raise InputError(
                f"the `tag` of {entry.title} must not be <s>, </s>, <pad>, <unk> or only letters and "
                f"digits, but is {entry.tag}; choose one such as <bt>"
            )
