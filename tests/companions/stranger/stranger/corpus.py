"""A corpus that is made up."""

from typing import ClassVar

from transformer_mt.corpora.corpus import Corpus

UNITS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf"}


class Numbers(Corpus):
    """Pairs of numbers in words. An item of `data.train` with the key `numbers` is such a corpus."""

    KEYS: ClassVar = ("numbers",)  # the keys that tell it from other kinds
    EXAMPLE: ClassVar = "{numbers: 500}"  # shown in errors

    numbers: int
    """How many pairs."""

    def describe(self):
        return f"{self.numbers} numbers"

    def stored_pairs(self, languages):
        words = list(UNITS.items())
        for i in range(self.numbers):
            pair = [words[i // 5**place % 5] for place in range(4)]
            yield " ".join(source for source, _ in pair), " ".join(target for _, target in pair)
