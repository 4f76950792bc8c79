"""Values of catalogues that are no language: they stay, and are counted."""

import re

CODES = "values that are no language"
_DATE = r"(?:y{1,4}|Y{1,4}|M{1,5}|L{1,5}|d{1,4}|D{1,4}|E{1,5}|H{1,2}|h{1,2}|m{1,2}|s{1,2}|S{1,3}|a|A|z|Z|X)"
_KINDS = (
    r"#(?:[0-9a-fA-F]{3,4}){1,2}|(?:rgb|hsl)a?\([^()]*\)",  # colours
    r"-?\d+(?:\.\d+)?(?:px|r?em|vh|vw|pt|ms|fr|dpi)",  # sizes and times
    r"[a-z]{2,3}[-_](?:[A-Z][a-z]{3}[-_])?(?:[A-Z]{2}|\d{3})|[a-z]{2,3}[-_][A-Z][a-z]{3}",  # locales
    r"(?:~|\.{1,2})?/\S*|[\w.-]+(?:/[\w.-]+)*\.[a-z][a-z0-9]{1,3}",  # paths and files
    r"(?:application|audio|font|image|multipart|text|video)/[\w.+-]+",  # media types
    rf"(?=.*(?:yy|YY|MM|dd|DD|HH|hh|mm|ss))'?{_DATE}(?:[^\w]+{_DATE})+'?",  # patterns of dates
    r"(?:(?:fa[bdlrs]?|mdi|bi|icon|glyphicon|material|ti|ri|la)(?:-[\w-]+)?\s+)?"
    r"(?:fa[bdlrs]?|mdi|bi|icon|glyphicon|material|ti|ri|la)-[\w-]+",  # names of icons
    r":[a-z0-9_+-]+:|@[\w.-]+",  # emoji and users
    r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[a-z]{2,}\w*(?:\.[a-z]\w+)+",  # names in code
    r"ltr|rtl|utf-?8|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
)
_CODE = re.compile("|".join(f"(?:{kind})" for kind in _KINDS))


def is_code(raw: str) -> bool:
    """True if the whole string is one such value."""
    return _CODE.fullmatch(raw.strip()) is not None
