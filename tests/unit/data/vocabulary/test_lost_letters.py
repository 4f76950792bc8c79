"""Letters that a vocabulary lacks or replaces are named, with the share of the pairs that have them."""

import pytest

from transformer_mt.config import TokenizerConfig
from transformer_mt.corpora.toy import generate
from transformer_mt.data.vocabulary.given_tokenizer import lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import Tokenizer

REPLACED = (
    "note: the vocabulary's normalisation replaces {}, in {} of the pairs; tokenizer.normalization: "
    "auto keeps them, if the vocabulary is learnt"
)


@pytest.mark.parametrize(
    "normalization, notes",
    [
        ("auto", []),
        ("identity", []),
        ("nfkc", [REPLACED.format("² ½ №", "50.0%")]),
        ("nmt_nfkc", [REPLACED.format("² ½ № U+200C", "75.0%")]),
    ],
)
def test_replaced_letters_are_named(normalization, notes):
    config = TokenizerConfig(vocab_size=400, normalization=normalization)
    tokenizer = Tokenizer.train(generate("train", 300), config)
    pairs = [("10² 5²", "x"), ("½", "№ ²"), ("e\u0301 \u00a0é", "é"), ("a", "می\u200cرود")]
    assert list(lost_letters_notes(tokenizer, pairs, is_given=False)) == notes


def test_letters_that_a_given_vocabulary_lacks_are_named():
    config = TokenizerConfig(vocab_size=200, byte_fallback=False)
    tokenizer = Tokenizer.train(generate("train", 300), config)
    pairs = [("the ɾ", "x ŧ"), ("a", "b"), ("ŧ", "b")]
    assert list(lost_letters_notes(tokenizer, pairs, is_given=False)) == []
    assert list(lost_letters_notes(tokenizer, pairs, is_given=True)) == [
        "note: the vocabulary lacks ŧ ɾ, which occur in 66.7% of the pairs: they become <unk>; "
        "data.new_pieces (with init_from) adds tokens for them"
    ]
