"""Keys that corpora and the config share: languages, objectives, cleaning rules."""

import re
import warnings
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from transformer_mt.errors import InputError
from transformer_mt.settings.section import Section, one_of, pattern
from transformer_mt.text.languages import code_of_name

_CODE = pattern(r"^[A-Za-z]{2,8}([_-]\w+)*$", "the code of a language, such as en or zh_Hans")
# Codes of countries that are often written for their language. None of them is another language's code.
_COUNTRIES = {
    "al": ("Albanian", "sq"),
    "by": ("Belarusian", "be"),
    "cn": ("Chinese", "zh"),
    "cz": ("Czech", "cs"),
    "dk": ("Danish", "da"),
    "gb": ("English", "en"),
    "ge": ("Georgian", "ka"),
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
    """InputError if the code is not the code of a language. Only new configs and new runs are checked."""
    if not re.fullmatch(_CODE, code):
        raise InputError(
            f"a language must be a code such as en or zh_Hans, but is {code!r}; source and target are two "
            "words: en de"
        )
    if code.lower() in _COUNTRIES:
        name, language = _COUNTRIES[code.lower()]
        raise InputError(
            f"a language must have a language's code, but {code} is a country's; {name} is {language}"
        )
    if right := code_of_name(code):
        raise InputError(f"a language must be a code such as en or zh_Hans, but is {code}; write {right}")


def label_piece(label: str) -> str:
    """The control token that stands for a label of a classification."""
    return f"__label__{label}"


if TYPE_CHECKING:
    Sides = bool | Literal["source", "target"]
else:
    Sides = one_of(bool | Literal["source", "target"], "true, false, source or target")

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message='Field name "copy"')  # BaseModel's deprecated method

    class FilterConfig(Section):
        """Cleaning rules that are off by default, because they may drop good pairs. `transformer-mt inspect`
        prints what each would drop.
        """

        copy: bool = False  # type: ignore[assignment]
        """Drop pairs whose source equals the target, apart from capitals, spacing and punctuation."""
        script: bool = False
        """Drop pairs if less than 30 % of a side's letters are in its language's script."""
        language: bool = False
        """Drop pairs with a side in another language, by py3langid (extra `clean`)."""
        numbers: bool = False
        """Drop pairs in which each side has a number of two or more digits that the other lacks."""
        markup: bool = False
        """Drop pairs with tags or template braces: <b>, {{name}}, [[link]]."""
        encoding: Literal["drop", "repair"] | None = None
        """The action on wrongly decoded text (`fÃ¼r`), control or replacement characters and HTML
        escapes (`&quot;`): drop the pair, or repair it with ftfy (extra `clean`) and drop pairs that
        stay damaged.
        """
        detokenize: Sides = False
        """Join tokenised text (`it 's , here`) into normal text with sacremoses (extra `clean`); in
        Chinese and Japanese, remove spaces between characters. On both sides, or on the one named.
        """
