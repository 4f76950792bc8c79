"""Text that passes through a translation unchanged unless a user turns it off: addresses, placeholders of
programs, tags, emoji, and numbers with their units.
"""

import re
from collections.abc import Callable
from functools import lru_cache

# A URL is matched only at its first character: otherwise the time for a line without spaces would be
# quadratic in its length.
ADDRESS = (
    r"(?<![A-Za-z0-9])(?i:https?|ftps?|sftp|ssh|file|git|mailto|tel):/?/?[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.])(?i:www)\.[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.@/-])(?:[A-Za-z0-9][\w-]*\.){1,6}[A-Za-z][\w-]*(?::\d{1,5})?/[^\s<>\"]*[^\s<>\".,;:!?)'\]}]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w"
)
# Templates; shells; names and numbers, with a format of Python or .NET; arguments of ICU and of Fluent.
_BRACES = (
    r"\{\{\{?[^{}\n]*\}\}\}?|\{%[^{}\n]*%\}|[$#%]\{[^{}\n]+\}|\$t\([^()\n]*\)"
    r"|\{[\w.\[\]:!#-]*\}|\{\s*-?\$?[\w-]+\s*\}|\{\d+(?:,-?\d+)?:[^{}\n]*\}"
    r"|\{[\w.\[\]]*(?:![rsa])?:(?:(?:[^{}\n]?[<>=^])?[-+ ]?z?#?0?\d*[,_]?(?:\.\d+)?[a-zA-Z%]?"
    r"|[^{}\n]*%[a-zA-Z][^{}\n]*)\}"
    r"|\{\s*\w+\s*,\s*(?:number|date|time|spellout|ordinal|duration)\b[^{}\n]*\}"
)
# C, with positions; Python and Ruby, with names; Apple; Twig; dates; Qt.
_SIZES = r"[-+0#']*+(?:\d++|\*)?+(?:\.(?:\d+|\*))?+"
_PRINTF = (
    rf"%(?:\(\w+\)|<\w+>){_SIZES}[a-zA-Z]|%%|(?<![\w%])%[A-Za-z_]\w+%(?![\w%])|%(?:\d+\$)?#@\w+@"
    r"|(?<![\d%])%L?\d{1,2}(?![\d$.a-zA-Z])"
    rf"|(?<![\d%])%(?:\d+\$)?{_SIZES}(?:hh?|ll?|[Lqjzt])?[a-zA-Z@](?![A-Za-z])"
)
_CODE = r"<%[^\n]{0,2000}?%>|<\?[^\n]{0,2000}?\?>"
_TAG = r"</?[A-Za-z][\w:.-]*(?:\s[^<>\n]*)?/?>|</?\d+\s*/?>|&(?:[A-Za-z]\w{1,31}|#\d{1,7}|#x[\dA-Fa-f]{1,6});"
_EMOJI_PARTS = r"\u2600-\u27bf\u2b00-\u2bff\U0001F000-\U0001FAFF"
_ONE_EMOJI = rf"[{_EMOJI_PARTS}][\ufe0e\ufe0f]?[\U0001F3FB-\U0001F3FF]?"
# Flags are two letters, or a flag and tags; persons with professions, families and the like are joined.
_EMOJI = rf"[\U0001F1E6-\U0001F1FF]{{2}}|{_ONE_EMOJI}(?:\u200d{_ONE_EMOJI})*[\U000E0020-\U000E007F]*"
# Symbols that are no words of a language: neither "in" nor "bar".
_UNIT = (
    r"(?:[kcdmµμn]?m[²³]|[kcdmµμn]?m(?:/s²?|/h)?|km/h|mph|[kmµμ]?g|t|[cdmµμ]?[lL]|[kMGT]?(?:Hz|Wh|W|V|Pa|bit)"
    r"|[kKMGT]i?B|m[AVW]|mAh|[mµμn]?s|h|min|°\s?[CFK]?|%%?|‰|dB|px|pt|rpm|ppm|mmHg|kcal|ft|lbs?|oz)"
)
_DIGITS = r"(?<![A-Za-z0-9.,])\d+(?:[.,'’\u00a0\u202f]\d+){0,6}"
_NUMBER = rf"{_DIGITS}[ \u00a0\u202f]?{_UNIT}(?![A-Za-z0-9])"

_OF_PROGRAMS = "|".join((ADDRESS, _CODE, _BRACES, _PRINTF, _TAG, _EMOJI))
OF_PROGRAMS = re.compile(_OF_PROGRAMS)
"""Addresses, placeholders, tags and emoji: digits in them are no numbers of the text."""
USUAL = re.compile(f"{_OF_PROGRAMS}|{_NUMBER}")
"""All of them."""
_MAY_MATCH = re.compile(rf"[{{<%&@$\d{_EMOJI_PARTS}]|[A-Za-z]:|[A-Za-z]\.[A-Za-z]")
_IS_NUMBER = re.compile(_NUMBER)
_SEPARATORS = re.compile(r"[\s.,'’]")


@lru_cache(maxsize=1024)  # a line is asked about four times
def may_match(text: str) -> bool:
    """True for each text that USUAL matches in. Most have none of it, and USUAL takes long to search."""
    return _MAY_MATCH.search(text) is not None


def number_with_unit(text: str) -> str | None:
    """A number with a unit in the form in which languages agree, as 3.5 kg is 3,5kg elsewhere; None for any
    other text.
    """
    return _SEPARATORS.sub("", text) if _IS_NUMBER.fullmatch(text) else None


def has_words(text: str, keep: Callable[[str], list[tuple[int, int]]] | None = None) -> bool:
    """True if there is anything to translate: a letter of any script, outside of addresses, placeholders,
    numbers with units, and what else is to be kept.
    """
    if not any(map(str.isalpha, text)):
        return False
    spans = keep(text) if keep else []
    if not spans and not may_match(text):
        return True
    letters = list(text)
    for begin, end in [*spans, *(match.span() for match in USUAL.finditer(text))]:
        letters[begin:end] = " " * (end - begin)
    return any(map(str.isalpha, letters))
