"""Language identification by py3langid (extra `clean`), and names of languages."""

from functools import lru_cache
from typing import Any

from transformer_mt.errors import InputError
from transformer_mt.text.language_codes import short_code

# Languages that no identifier tells apart in one sentence.
_ALIKE = [{"no", "nb", "nn", "da"}, {"hr", "sr", "bs", "sh"}, {"id", "ms"}, {"zh", "yue", "wuu"}]
# A sentence of fewer letters says little about its language.
_LEAST_LETTERS = 10


class LanguageIdentifier:
    """Probabilities of languages for a text."""

    def __init__(self) -> None:
        """InputError if the extra is not installed."""
        self._model = _model()

    def knows(self, language: str) -> bool:
        return bool(_codes(language) & set(self._model.labels))

    def is_other(self, text: str, language: str) -> bool:
        """True if the text is clearly in another language: one that is at least three times as probable.
        Short texts are not.
        """
        if sum(map(str.isalpha, text)) < (_LEAST_LETTERS if text.isascii() else _LEAST_LETTERS // 2):
            return False
        ranked = self.probabilities(text)
        wanted = max(ranked.get(code, 0.0) for code in _codes(language))
        return wanted < max(ranked.values()) / 3

    def probabilities(self, text: str) -> dict[str, float]:
        """The probability of each language it knows."""
        return {str(language): float(value) for language, value in self._model.rank(text)}

    def best(self, text: str) -> str:
        """The most probable language."""
        return str(self._model.classify(text)[0])


def is_same_language(language: str, other: str) -> bool:
    """True if two codes are of one language, or of two that cannot be told apart."""
    return bool(_codes(language) & _codes(other))


def names_of(code: str) -> set[str]:
    """The language's name in English and in itself, in small letters; none without babel (extras `clean`,
    `argos` and `serve`).
    """
    try:
        from babel import Locale, UnknownLocaleError
    except ImportError:
        return set()
    base = base_code(code)
    try:
        endonym = Locale(base).languages.get(base)
    except UnknownLocaleError:
        endonym = None
    return {name.lower() for name in (Locale("en").languages.get(base), endonym) if name}


def language_name(code: str) -> str:
    """Its name in English, by babel (extras `argos` and `serve`), or the code where it is not known."""
    try:
        from babel import Locale
    except ImportError:
        return code
    names = Locale("en").languages
    code_there = code.replace("-", "_")
    return str(names.get(code_there) or names.get(code_there.split("_")[0].lower()) or code)


def base_code(language: str) -> str:
    """The code without script and country, of two letters where there is one: `zh` of zh_CN and zho_Hans."""
    return short_code(hyphenated(language).split("-")[0])


def hyphenated(language: str) -> str:
    """The code in small letters with hyphens: `zh-hant` of zh_Hant."""
    return language.lower().replace("_", "-")


def is_natural(language: str) -> bool:
    """True if the code is that of a natural language (ISO 639: two or three letters), not a name such as
    `phonemes` or `label`, for which nothing is known about sentences, numbers and lengths.
    """
    return len(base_code(language)) <= 3


def _codes(language: str) -> set[str]:
    code = base_code(language)
    return {code}.union(*(group for group in _ALIKE if code in group))


@lru_cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError(
            "py3langid must be installed to identify languages, but is not; install the extra: "
            'pip install "transformer-mt[clean]"'
        ) from None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
