"""Other codes for the languages of a server: `zh-CN` and `zh-Hans` where it has `zh`, `en-US` where `en`."""

from collections.abc import Iterable

from transformer_mt.text.languages import base_code

_OLD = {"zt": "zh_Hant", "pb": "pt_BR", "iw": "he", "in": "id", "ji": "yi"}
"""Codes of LibreTranslate's own, and those that ISO has withdrawn."""


def known_code(code: str, known: Iterable[str]) -> str:
    """The code by which a server knows the language: the same, else one of the same language, in the same
    script and country if there is one; the given code if there is none.
    """
    codes = list(dict.fromkeys(known))
    if code in codes or not code:
        return code
    wanted = _parts(_OLD.get(code.lower(), code))
    candidates = [(sum(part in wanted for part in _parts(other)), other) for other in codes]
    same = [(fits, other) for fits, other in candidates if _parts(other)[0] == wanted[0]]
    best = max(same, key=lambda one: one[0], default=(0, code))
    is_other_script = best[0] and len({_parts(best[1])[1], wanted[1]} - {""}) > 1
    return code if is_other_script else best[1]


def _parts(code: str) -> tuple[str, str, str]:
    """Language, script and country, the likeliest script where none is named."""
    from babel import Locale, UnknownLocaleError

    try:
        locale = Locale.parse(code.replace("-", "_"), resolve_likely_subtags=True)
    except (ValueError, UnknownLocaleError, TypeError):
        return base_code(code), "", ""
    return locale.language, locale.script or _likely_script(locale.language), locale.territory or ""


def _likely_script(language: str) -> str:
    from babel.core import get_global

    parts = get_global("likely_subtags").get(language, "").split("_")
    return str(parts[1]) if len(parts) > 1 else ""
