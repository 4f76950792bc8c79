"""Stems of words: inflected forms of a word have the same one."""

from functools import lru_cache
from threading import Lock

from transformer_mt.text.languages import base_code

_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek",
    "en": "english", "eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian",
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
    """The stems of one language by Snowball (Porter 2001); of others the words without capitals."""

    def __init__(self, language: str) -> None:
        import snowballstemmer

        name = _STEMMERS.get(base_code(language))
        self._stemmer = snowballstemmer.stemmer(name) if name in snowballstemmer.algorithms() else None
        self._known: dict[str, str] = {}
        self._lock = Lock()

    def __call__(self, word: str) -> str:
        if (stem := self._known.get(word)) is None:
            stem = word.casefold()
            if self._stemmer is not None and len(word) <= _LONGEST:
                with self._lock:  # a stemmer keeps the word it works on
                    stem = self._stemmer.stemWord(stem)
            if len(self._known) < _MOST_KNOWN:
                self._known[word] = stem
        return stem
