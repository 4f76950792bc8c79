"""Languages and scripts that put no spaces between words."""

import re

import regex

from transformer_mt.text.languages import base_code

_CHINESE = ("zh", "yue", "wuu", "lzh", "nan", "hak", "gan", "hsn")
_NO_SPACES_AT_ALL = (*_CHINESE, "ja")
# Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha and their relatives have spaces between clauses.
_SPACES_BETWEEN_CLAUSES = (
    "th", "tts", "nod", "sou", "lo", "km", "my", "shn", "mnw", "ksw", "kjp", "rki", "bo", "dz",
)  # fmt: skip
_LANGUAGES = (*_NO_SPACES_AT_ALL, *_SPACES_BETWEEN_CLAUSES)
UNSEGMENTED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
"""A character of such a script, for the module regex."""
_IS_UNSEGMENTED = regex.compile(UNSEGMENTED)
LETTER = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffff]")
"""A letter or digit of another script. Not of Korean, which writes particles together with words."""


def has_no_word_spaces(language: str) -> bool:
    """True if a language, such as zh_Hans, puts no spaces between words."""
    return base_code(language) in _LANGUAGES


def is_chinese(language: str) -> bool:
    """True if the language is written in Chinese characters alone."""
    return base_code(language) in _CHINESE


def count_unsegmented(text: str) -> int:
    """Number of characters of such a script in the text; each is about a word."""
    if text.isascii():
        return 0
    return len(_IS_UNSEGMENTED.findall(text))


# Characters of Chinese and Japanese, with their full-width punctuation.
_WIDE = r"[\p{Han}\p{Hiragana}\p{Katakana}ー“”‘’…\u3001-\u303f\uff01-\uff60]"
_IS_WIDE = regex.compile(_WIDE)
_SPACES = regex.compile(rf"(?<={_WIDE})\s+(?={_WIDE})")


def has_no_spaces(language: str) -> bool:
    """True if the language has spaces neither between words nor between clauses and sentences."""
    return base_code(language) in _NO_SPACES_AT_ALL


def joined(first: str, second: str) -> str:
    """Two sentences on a line, with a space between them unless both are of Chinese or Japanese."""
    wide = first and second and _IS_WIDE.match(first[-1]) and _IS_WIDE.match(second[0])
    return first + second if wide else f"{first} {second}"


def has_spaces_within(text: str) -> bool:
    """True if characters of Chinese or Japanese have spaces between them."""
    return not text.isascii() and _SPACES.search(text) is not None


def join_words(text: str) -> str:
    """The text without spaces between characters of Chinese or Japanese."""
    return _SPACES.sub("", text)
