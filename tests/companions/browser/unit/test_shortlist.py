"""The target tokens that are probable with each source token."""

import numpy as np

from tests.helpers.shortlist import unpacked
from transformer_mt.companions.browser.shortlist import BEST, COMMON, packed, probable_tokens
from transformer_mt.data.vocabulary.tokenizer import EOS


def pairs(count):
    """Each source token i has the translation 300 - i; the order of words is another one. Each target ends in
    one of 200 tokens that translate nothing.
    """
    random = np.random.default_rng(1)
    for row in random.integers(10, 100, size=(count, 8)):
        end = 400 + int(random.integers(0, 200**2) ** 0.5)
        yield row, np.array([*random.permutation(300 - row), end])


def test_the_translation_of_a_token_is_the_first_of_its_list():
    lists = probable_tokens(pairs(600))
    assert all(lists[token][0] == 300 - token and len(lists[token]) == BEST for token in range(10, 100))
    assert lists.keys() == {*range(10, 100), EOS}


def test_the_end_has_the_most_frequent_tokens_of_all():
    tokens, counts = np.unique(np.concatenate([tgt for _, tgt in pairs(600)]), return_counts=True)
    common = np.isin(tokens, probable_tokens(pairs(600))[EOS])
    assert common.sum() == COMMON < len(tokens) and counts[common].min() >= counts[~common].max()


def test_a_file_holds_its_lists():
    lists = [[0, 3], [0], [0, 1, 2]]
    assert [tokens.tolist() for tokens in unpacked(packed(lists))] == lists
