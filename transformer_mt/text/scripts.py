"""Scripts of languages, and their shares in a text."""

from functools import lru_cache

import regex

from transformer_mt.text.language_codes import short_code
from transformer_mt.text.languages import hyphenated

_SCRIPTS = {
    "Arabic": "ar fa ur ps ug sd ckb arz ary sdh uzs",
    "Arabic Latin": "ku",
    "Armenian": "hy",
    "Bengali": "bn as",
    "Cyrillic": "ru uk bg mk be kk ky mn tg tt ba cv",
    "Devanagari": "hi mr ne sa gom",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el grc",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "zh yue wuu cmn lzh",
    "Han Hangul": "ko",
    "Han Hiragana Katakana": "ja",
    "Hebrew": "he hbo yi",
    "Kannada": "kn",
    "Khmer": "km",
    "Lao": "lo",
    "Latin": "en de fr es it pt nl sv da no nb nn is fi et lv lt pl cs sk sl hr hu ro sq tr ca gl eu ga gd "
    "cy br mt la eo af sw zu xh st tn yo ig ha so rw id ms jv tl fil vi ht qu gn ay lb fo fy oc ast wa co "
    "ilo ceb war bs az tk crh mg om sn lg ln nso pcm se an lij vec ltg kab ace bcl ext fuv gcf gcr gug guw "
    "kik vo",
    "Latin Cyrillic": "sr uz",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Nko": "nqo",
    "Oriya": "or",
    "Sinhala": "si",
    "Syriac": "syr arc",
    "Tamil": "ta",
    "Telugu": "te",
    "Thaana": "dv",
    "Thai": "th",
    "Tibetan": "bo dz",
}  # fmt: skip
_OF_LANGUAGE = {code: scripts.split() for scripts, codes in _SCRIPTS.items() for code in codes.split()}
_OF_SUBTAG = {
    "arab": "ar", "armn": "hy", "beng": "bn", "cyrl": "ru", "deva": "hi", "ethi": "am", "geor": "ka",
    "grek": "el", "gujr": "gu", "guru": "pa", "hang": "ko", "hans": "zh", "hant": "zh", "hebr": "he",
    "jpan": "ja", "khmr": "km", "knda": "kn", "kore": "ko", "laoo": "lo", "latn": "en", "mlym": "ml",
    "mymr": "my", "orya": "or", "sinh": "si", "taml": "ta", "telu": "te", "thai": "th", "tibt": "bo",
}  # fmt: skip
"""A language that is written in the script of each subtag."""
_FROM_THE_RIGHT = {"Arabic", "Hebrew", "Nko", "Syriac", "Thaana"}
_LETTERS = regex.compile(r"\p{L}+")


def is_right_to_left(language: str) -> bool:
    """True for a language that is written from the right to the left."""
    return (scripts_of(language) or ["Latin"])[0] in _FROM_THE_RIGHT


def scripts_of(language: str) -> list[str] | None:
    """The scripts of a language (`sr`, `zho_Hans`, `uz-Cyrl`); None if they are not known."""
    first, *others = hyphenated(language).split("-")
    for subtag in others:
        if subtag in _OF_SUBTAG:
            return _OF_LANGUAGE[_OF_SUBTAG[subtag]]
    return _OF_LANGUAGE.get(first) or _OF_LANGUAGE.get(short_code(first))


def script_share(text: str, language: str) -> float | None:
    """The share of the text's letters that are of the language's script; None for a text without letters and
    for a language whose script is not known.
    """
    scripts = scripts_of(language)
    if scripts is None:
        return None
    if text.isascii():
        return None if not any(map(str.isalpha, text)) else float("Latin" in scripts)
    others = sum(map(len, _other_letters(tuple(scripts)).findall(text)))
    if not others:
        return 1.0 if any(map(str.isalpha, text)) else None
    return 1.0 - others / sum(map(len, _LETTERS.findall(text)))


def foreign_words(language: str) -> "regex.Pattern[str] | None":
    """Matches words in another script than the language's, apart from Latin; None where its is not known."""
    scripts = scripts_of(language)
    return None if scripts is None else _other_letters((*scripts, "Latin"))


@lru_cache
def _other_letters(scripts: tuple[str, ...]) -> "regex.Pattern[str]":
    """A pattern for runs of letters of other scripts. Letters that several scripts share belong to
    none, such as the sign that lengthens vowels in Japanese.
    """
    ours = "".join(rf"\p{{Script={script}}}" for script in (*scripts, "Common", "Inherited"))
    return regex.compile(rf"[\p{{L}}--[{ours}]]+", regex.V1)


# Letters that several scripts share are left out.
_NAMES = sorted({name for names in _SCRIPTS for name in names.split()})
_NAMED = {name: regex.compile(rf"\p{{Script={name}}}") for name in _NAMES}


def count_scripts(text: str) -> dict[str, int]:
    """Letters of each script in the text."""
    if text.isascii():
        return {"Latin": count} if (count := sum(map(str.isalpha, text))) else {}
    letters = "".join(_LETTERS.findall(text))
    counts = {name: len(pattern.findall(letters)) for name, pattern in _NAMED.items()}
    return {name: count for name, count in counts.items() if count}
