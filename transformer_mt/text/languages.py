"""Languages and scripts: codes and names, letters, capitals, and languages without spaces between words."""

import re
import tempfile
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import regex

from transformer_mt.errors import InputError
from transformer_mt.files import naming

# Maps ISO 639-2 and 639-3 to 639-1, and members of a macrolanguage to its code, as in Unicode's CLDR.
_PAIRS = """
aar:aa abk:ab adp:dz afr:af aka:ak alb:sq als:sq amh:am ara:ar arb:ar arg:an arm:hy asm:as ava:av ave:ae
aym:ay ayr:ay aze:az azj:az bak:ba bam:bm baq:eu bel:be ben:bn bis:bi bod:bo bos:bs bre:br bul:bg bur:my
cat:ca ces:cs cha:ch che:ce chi:zh chu:cu chv:cv cls:sa cmn:zh cor:kw cos:co cre:cr cwd:cr cym:cy cze:cs
dan:da deu:de div:dv drh:mn dut:nl dzo:dz ekk:et ell:el eng:en epo:eo esk:ik est:et eus:eu ewe:ee fao:fo
fas:fa fat:ak fij:fj fin:fi fra:fr fre:fr fry:fy fuc:ff ful:ff gaz:om geo:ka ger:de gla:gd gle:ga glg:gl
glv:gv gre:el grn:gn gug:gn guj:gu hat:ht hau:ha heb:he her:hz hin:hi hmo:ho hrv:hr hun:hu hye:hy ibo:ig
ice:is ido:io iii:ii ike:iu iku:iu ile:ie ina:ia ind:id ipk:ik isl:is ita:it jav:jv jpn:ja kal:kl kan:kn
kas:ks kat:ka kau:kr kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kng:kg kom:kv kon:kg kor:ko
kpv:kv kua:kj kur:ku lao:lo lat:la lav:lv lim:li lin:ln lit:lt ltz:lb lub:lu lug:lg lvs:lv mac:mk mah:mh
mal:ml mao:mi mar:mr may:ms mkd:mk mlg:mg mlt:mt mol:ro mon:mn mri:mi msa:ms mya:my nau:na nav:nv nbl:nr
nde:nd ndo:ng nep:ne nld:nl nno:nn nob:nb nor:no npi:ne nya:ny oci:oc ojg:oj oji:oj ori:or orm:om ory:or
oss:os pan:pa pbu:ps per:fa pes:fa pli:pi plt:mg pol:pl por:pt prp:gu pus:ps que:qu quz:qu roh:rm ron:ro
rum:ro run:rn rus:ru sag:sg san:sa scc:sr scr:hr sin:si slk:sk slo:sk slv:sl sme:se smo:sm sna:sn snd:sd
som:so sot:st spa:es sqi:sq src:sc srd:sc srp:sr ssw:ss sun:su swa:sw swe:sv swh:sw tah:ty tam:ta tat:tt
tel:te tgk:tg tgl:tl tha:th tib:bo tir:ti ton:to tsn:tn tso:ts tuk:tk tur:tr twi:ak uig:ug ukr:uk urd:ur
uzb:uz uzn:uz ven:ve vie:vi vol:vo wel:cy wln:wa wol:wo xho:xh ydd:yi yid:yi yor:yo zha:za zho:zh zsm:ms
zul:zu zyb:za
"""
_SHORT = dict(pair.split(":") for pair in _PAIRS.split())
TWO_LETTERS = frozenset(_SHORT.values())
"""The codes of two letters."""


def short_code(code: str) -> str:
    """The code of two letters, `en` of `eng`, where there is one."""
    return _SHORT.get(code.lower(), code)


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
    """A pattern for words that are neither in the language's script nor in Latin; None if its script is not
    known.
    """
    scripts = scripts_of(language)
    return None if scripts is None else _other_letters((*scripts, "Latin"))


@lru_cache
def _other_letters(scripts: tuple[str, ...]) -> "regex.Pattern[str]":
    """A pattern for runs of letters of other scripts. It does not match letters that several scripts share,
    such as the sign that lengthens vowels in Japanese.
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


_CHINESE = ("zh", "yue", "wuu", "lzh", "nan", "hak", "gan", "hsn")
_NO_SPACES_AT_ALL = (*_CHINESE, "ja")
# Thai, Lao, Khmer, Burmese, Tibetan, Dzongkha and their relatives have spaces between clauses.
_SPACES_BETWEEN_CLAUSES = (
    "th", "tts", "nod", "sou", "lo", "km", "my", "shn", "mnw", "ksw", "kjp", "rki", "bo", "dz",
)  # fmt: skip
_LANGUAGES = (*_NO_SPACES_AT_ALL, *_SPACES_BETWEEN_CLAUSES)
UNSEGMENTED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}]"
"""Pattern, for the module regex, of a character of a script without spaces between words."""
_IS_UNSEGMENTED = regex.compile(UNSEGMENTED)
LETTER = re.compile(r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffff]")
"""A letter or digit of a script with spaces between words, but not of Korean, where particles are attached to
words.
"""


def has_no_word_spaces(language: str) -> bool:
    """True if a language, such as zh_Hans, puts no spaces between words."""
    return base_code(language) in _LANGUAGES


def is_chinese(language: str) -> bool:
    """True if the language is written in Chinese characters alone."""
    return base_code(language) in _CHINESE


def count_unsegmented(text: str) -> int:
    """Number of characters of scripts without spaces between words; each is about a word."""
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


_DOTLESS_I = ("tr", "az")
"""Languages that have the pairs I ı and İ i."""
_ACUTE = "\u0301"


def letter_case(language: str) -> dict[str, Any]:
    """How a language differs in its capitals from others: `pairs` of small and capital letters of its own, an
    accent that capitals are written `without`, and whether it has `capitals` at all.
    """
    code = base_code(language)
    if code in _DOTLESS_I:
        return {"pairs": [["i", "İ"], ["ı", "I"]]}
    if code == "el":
        return {"without": _ACUTE}
    # Georgian's capitals of Unicode are for emphasis, and rarely in a vocabulary.
    return {"capitals": False} if code == "ka" else {}


def to_capitals(text: str, language: str) -> list[str]:
    """The text in capitals, in one string per character: ß becomes SS. Greek capitals have no accents, and
    Georgian is written without capitals.
    """
    case = letter_case(language)
    if not case.get("capitals", True):
        return list(text)
    pairs = dict(case.get("pairs", ()))
    letters = [pairs.get(character) or character.upper() for character in text]
    return [_without(letter, case["without"]) for letter in letters] if "without" in case else letters


def to_small_letters(text: str, language: str) -> str:
    """The text in small letters; it has the same length."""
    for small, capital in letter_case(language).get("pairs", ()):
        text = text.replace(capital, small)
    # On the whole text, as a final sigma depends on its neighbours. lower() would make İ two characters.
    return text.replace("İ", "i").lower()


def titled(text: str, language: str) -> str:
    """Each word with a capital; in Dutch IJ is one letter."""
    return " ".join(_capitalised(word, language) for word in text.split(" "))


def _capitalised(word: str, language: str) -> str:
    # Not str.title of the word, which takes the letter after an apostrophe for the first of another.
    code = base_code(language)
    if code in _DOTLESS_I and word[:1] == "i":
        return "İ" + word[1:]
    first = 2 if code == "nl" and word[:2].lower() == "ij" else 1
    capital: Callable[[str], str] = str.upper if first == 2 else str.title  # ǆ has the title form ǅ
    return capital(word[:first]) + word[first:]


def casefolded(text: str, language: str) -> str:
    """The text without capitals, to compare it."""
    if base_code(language) in _DOTLESS_I:
        text = text.replace("I", "ı").replace("İ", "i")
    return text.casefold()


def _without(letter: str, accent: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", letter).replace(accent, ""))


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


_LONGEST_CODE = 3


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


def code_of_name(name: str) -> str | None:
    """Returns `de` for german and Deutsch; None if no language has this name in English or in itself, and
    without babel.
    """
    if (
        len(name) <= _LONGEST_CODE or not name.isalpha()
    ):  # a code; reading all languages takes most of a second
        return None
    return next((code for code in sorted(TWO_LETTERS) if name.lower() in names_of(code)), None)


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
    return len(base_code(language)) <= _LONGEST_CODE


def _codes(language: str) -> set[str]:
    code = base_code(language)
    return {code}.union(*(group for group in _ALIKE if code in group))


@lru_cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError(
            "py3langid, which identifies languages, is not installed; install the extra: "
            'pip install "transformer-mt[clean]"'
        ) from None
    with naming(Path(tempfile.gettempdir())):  # it unpacks the model there
        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
