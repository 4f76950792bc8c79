"""Stems of words: inflected forms of a word have the same one.

In English these are singular, plural and possessive only: Porter's stems are those of related words, too
(import, important).
"""

import re
from functools import lru_cache
from threading import Lock

from transformer_mt.text.languages import base_code, casefolded

_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
    "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali",
    "nl": "dutch", "nn": "norwegian", "no": "norwegian", "pl": "polish", "pt": "portuguese",
    "ro": "romanian", "ru": "russian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "tr": "turkish",
    "yi": "yiddish",
}  # fmt: skip
_LONGEST = 60
"""A longer word is its own stem: stemmers would take long."""
_MOST_KNOWN = 1_000_000
"""Stems that are kept: a server reads texts without end."""


@lru_cache(maxsize=16)
def stems_of(language: str) -> "Stems":
    """The stems of a language; those that were computed are kept."""
    return Stems(language)


class Stems:
    """The stems of a language by Snowball (Porter 2001); of one it lacks, the words without capitals."""

    def __init__(self, language: str) -> None:
        import snowballstemmer

        self._language = language
        self._is_english = base_code(language) == "en"
        name = _STEMMERS.get(base_code(language))
        self._stemmer = snowballstemmer.stemmer(name) if name in snowballstemmer.algorithms() else None
        self._known: dict[str, str] = {}
        self._lock = Lock()

    def __call__(self, word: str) -> str:
        if (stem := self._known.get(word)) is None:
            stem = casefolded(word, self._language).replace("’", "'")
            if self._is_english:
                stem = _singular(stem)
            if self._stemmer is not None and len(word) <= _LONGEST:
                with self._lock:  # a stemmer keeps the word it works on
                    stem = self._stemmer.stemWord(stem)
            if len(self._known) < _MOST_KNOWN:
                self._known[word] = stem
        return stem


_ENDINGS = (
    (re.compile(r"(?<=.)'s?$"), ""),
    (re.compile(r"(?<=[a-z]{2})ies$"), "y"),
    (re.compile(r"(?<=[a-z])(?:(?<=ss)|(?<=sh)|(?<=ch)|(?<=x)|(?<=z))es$"), ""),
    (re.compile(r"(?<=[a-z]{2})(?<![isu])s$"), ""),
)


def _singular(word: str) -> str:
    """Remove the possessive and plural endings of an English noun."""
    possessive, *plurals = _ENDINGS
    word = possessive[0].sub(possessive[1], word)
    for ending, instead in plurals:
        shorter = ending.sub(instead, word)
        if shorter != word:
            return shorter
    return word
