"""Language codes of the YAML."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_CODE = r"^[A-Za-z]{2,8}([_-]\w+)*$"
# Codes of countries that are often written for a language. None of them is the code of another language.
_COUNTRIES = {
    "al": ("Albanian", "sq"),
    "by": ("Belarusian", "be"),
    "cn": ("Chinese", "zh"),
    "cz": ("Czech", "cs"),
    "dk": ("Danish", "da"),
    "gb": ("English", "en"),
    "gr": ("Greek", "el"),
    "jp": ("Japanese", "ja"),
    "rs": ("Serbian", "sr"),
    "tw": ("Chinese", "zh"),
    "ua": ("Ukrainian", "uk"),
    "us": ("English", "en"),
    "vn": ("Vietnamese", "vi"),
}


def _refuse_country(code: str) -> str:
    if code.lower() in _COUNTRIES:
        name, language = _COUNTRIES[code.lower()]
        raise ValueError(
            f"a language must have its own code, but {code} is that of a country; {name} is {language}"
        )
    return code


def check_language(code: str) -> str:
    """The code. ValueError if it is no code of a language."""
    if not re.fullmatch(_CODE, code):
        raise ValueError(f"a language must be a code such as en or zh_Hans, but is {code!r}")
    return _refuse_country(code)


LanguageCode = Annotated[str, Field(pattern=_CODE)]
"""A code as a collection of corpora writes it."""
Language = Annotated[LanguageCode, AfterValidator(_refuse_country)]
"""`en`, `zh_Hans`: also chooses BLEU's tokenizer and how sentences are split."""
