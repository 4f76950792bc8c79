"""The target tokens that are probable with each source token."""

import numpy as np

from tests.helpers.shortlist import unpacked
from transformer_mt.companions.browser.shortlist import BEST, COMMON, packed, probable_tokens
from transformer_mt.data.vocabulary.tokenizer import EOS


class Pairs:
    """Each source token i has the translation 300 - i; the order of words is another one. Each target ends in
    one of 200 tokens that translate nothing.
    """

    def __init__(self, count):
        random = np.random.default_rng(1)
        sources = random.integers(10, 100, size=(count, 8))
        ends = 400 + np.sqrt(random.integers(0, 200**2, size=count)).astype(int)
        self.sources = [np.array([*row, EOS]) for row in sources]
        self.targets = [np.array([*random.permutation(300 - row), end]) for row, end in zip(sources, ends)]

    def __len__(self):
        return len(self.sources)

    def src(self, row):
        return self.sources[row]

    def tgt(self, row):
        return self.targets[row]


def test_the_translation_of_a_token_is_the_first_of_its_list():
    lists = probable_tokens(Pairs(600), 120)
    assert all(lists[token][0] == 300 - token and len(lists[token]) == BEST for token in range(10, 100))
    assert lists.keys() == {*range(10, 100), EOS}


def test_the_end_has_the_most_frequent_tokens_of_all():
    pairs = Pairs(600)
    tokens, counts = np.unique(np.concatenate(pairs.targets), return_counts=True)
    rare = counts[np.isin(tokens, probable_tokens(pairs, 120)[EOS], invert=True)]
    assert len(rare) and max(rare) <= sorted(counts)[-COMMON]


def test_a_file_holds_its_lists():
    lists = [[0, 3], [0], [0, 1, 2]]
    assert [tokens.tolist() for tokens in unpacked(packed(lists))] == lists
