"""An index of texts that finds those that are like another one.

Letters: U texts, W words in all of them, D different words.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from transformer_mt.errors import InputError
from transformer_mt.text.words import split_words

_MOST_POSTINGS = 20_000
"""Entries of the index that a look-up reads: those of the rarest words first."""
_CANDIDATES = 30
"""Texts that are compared word by word."""


class FuzzyIndex:
    """Texts by their words. The similarity of two is 1 - edit distance / words of the longer one, in words
    without capitals (Bulté and Tezcan 2019, section 3.1).
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._distance = _rapidfuzz()
        self._numbers: dict[str, int] = {}
        numbers, sizes = array("i"), array("i")
        for text in texts:
            words = words_of(text)
            numbers.extend(self._numbers.setdefault(word, len(self._numbers)) for word in words)
            sizes.append(len(words))
        U = len(sizes)
        self._sizes = np.array(sizes, np.int64)
        self._starts = np.concatenate([[0], np.cumsum(self._sizes)])
        self._words = np.array(numbers, np.int32)  # (W,)
        # For each word the texts that have it, once each.
        pairs = self._words.astype(np.int64) * max(1, U) + np.repeat(np.arange(U), self._sizes)
        of_word, self._postings = np.divmod(np.unique(pairs), max(1, U))
        self._postings = self._postings.astype(np.int32)
        self._begins = np.searchsorted(of_word, np.arange(len(self._numbers) + 1))  # (D + 1,)

    def __len__(self) -> int:
        return len(self._sizes)

    def most_similar(self, text: str, least: float, without: Sequence[int] = ()) -> tuple[int, float] | None:
        """(number, similarity) of the most similar text, the first of several; None if none has the `least`
        similarity. Those `without` are not looked at.
        """
        words = words_of(text)
        known = [self._numbers.get(word, -1) for word in words]
        candidates = self._candidates(known, least)
        best: tuple[int, float] | None = None
        for number in candidates.tolist():
            if number in without:
                continue
            own = self._words[self._starts[number] : self._starts[number + 1]].tolist()
            cutoff = best[1] if best else least
            found = self._distance(known, own, score_cutoff=cutoff)
            if found >= least and (best is None or (found, -number) > (best[1], -best[0])):
                best = number, found
        return best

    def _candidates(self, words: Sequence[int], least: float) -> np.ndarray:
        """The texts that share the most of the rare words, and may be as similar as this."""
        different = sorted({word for word in words if word >= 0}, key=lambda word: (self._count(word), word))
        chosen: list[np.ndarray] = []
        weights: list[float] = []
        total = 0
        for word in different:
            if chosen and total + self._count(word) > _MOST_POSTINGS:
                break
            chosen.append(self._postings[self._begins[word] : self._begins[word + 1]])
            weights.append(math.log(1 + len(self) / self._count(word)))
            total += self._count(word)
        if not chosen:
            return np.zeros(0, np.int64)
        texts = np.concatenate(chosen)
        scores = np.repeat(weights, [len(part) for part in chosen])
        # A text of another length is less similar than the lengths alone allow.
        sizes = self._sizes[texts]
        fits = np.minimum(sizes, len(words)) >= least * np.maximum(sizes, len(words)) - 1e-9
        texts, which = np.unique(texts[fits], return_inverse=True)
        sums = np.bincount(which.reshape(-1), scores[fits], len(texts))
        order = np.lexsort((texts, -sums))[:_CANDIDATES]
        return texts[order]

    def _count(self, word: int) -> int:
        return int(self._begins[word + 1] - self._begins[word])


def words_of(text: str) -> list[str]:
    """The words and marks of a text without capitals."""
    return split_words(text.casefold())


def _rapidfuzz() -> Any:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError as error:
        raise InputError(
            f"to look for similar texts this needs rapidfuzz: pip install 'transformer-mt[memory]' ({error})"
        ) from None
    return Levenshtein.normalized_similarity
