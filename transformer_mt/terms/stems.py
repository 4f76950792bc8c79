"""Stems of words: inflected forms of a word have the same one."""

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


class Stems:
    """The stems of one language by Snowball (Porter 2001); of others the words without capitals."""

    def __init__(self, language: str) -> None:
        import snowballstemmer

        name = _STEMMERS.get(base_code(language))
        self._stemmer = snowballstemmer.stemmer(name) if name in snowballstemmer.algorithms() else None
        self._known: dict[str, str] = {}

    def __call__(self, word: str) -> str:
        if (stem := self._known.get(word)) is None:
            stem = word.casefold()
            if self._stemmer is not None and len(word) <= _LONGEST:
                stem = self._stemmer.stemWord(stem)
            self._known[word] = stem
        return stem
