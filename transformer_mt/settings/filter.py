"""The YAML's `data.filter`: which cleaning rules are on."""

import warnings
from typing import TYPE_CHECKING, Literal

from transformer_mt.settings.section import Section, one_of

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
