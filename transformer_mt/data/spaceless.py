"""Languages and scripts that put no spaces between words."""

import unicodedata

_LANGUAGES = ("zh", "ja", "th", "lo", "km", "my")
_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def is_spaceless(target_lang: str) -> bool:
    """Whether a language, such as zh_Hans, puts no spaces between words and sentences."""
    return target_lang.lower().replace("_", "-").split("-")[0] in _LANGUAGES


def count_spaceless(text: str) -> int:
    """How many characters of the text are of such a script; each stands for about a word."""
    return sum(not c.isascii() and unicodedata.name(c, "").startswith(_SCRIPTS) for c in text)
