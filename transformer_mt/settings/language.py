"""Language codes of the YAML."""

import re
from typing import Annotated

from pydantic import Field

from transformer_mt.errors import InputError
from transformer_mt.settings.section import pattern

_CODE = pattern(r"^[A-Za-z]{2,8}([_-]\w+)*$", "the code of a language, such as en or zh_Hans")
# Codes of countries that are often written for their language. None of them is another language's code.
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
    "ua": ("Ukrainian", "uk"),
    "us": ("English", "en"),
    "vn": ("Vietnamese", "vi"),
}


Language = Annotated[str, Field(pattern=_CODE)]
"""`en`, `zh_Hans`: also chooses BLEU's tokenizer and how sentences are split."""


def check_language(code: str) -> None:
    """InputError if the code is none of a language, as a new config and a new run must have."""
    if not re.fullmatch(_CODE, code):
        raise InputError(f"a language must be a code such as en or zh_Hans, but is {code!r}")
    if code.lower() in _COUNTRIES:
        name, language = _COUNTRIES[code.lower()]
        raise InputError(
            f"a language must have a language's code, but {code} is a country's; {name} is {language}"
        )
