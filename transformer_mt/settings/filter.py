"""The YAML's `data.filter`: which cleaning rules are on."""

import warnings
from typing import Literal

from transformer_mt.settings.section import Section

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message='Field name "copy"')  # BaseModel's deprecated method

    class FilterConfig(Section):
        """Cleaning rules that are off by default, because they may drop good pairs. `transformer-mt inspect`
        prints what each would drop.
        """

        copy: bool = False  # type: ignore[assignment]
        """Drop pairs whose source equals the target, apart from capitals, spacing and punctuation."""
        script: bool = False
        """Drop pairs with a side less than 30 % of whose letters are of its language's script."""
        language: bool = False
        """Drop pairs with a side in another language, by py3langid (extra `clean`)."""
        numbers: bool = False
        """Drop pairs in which each side has a number of two or more digits that the other has not."""
        markup: bool = False
        """Drop pairs with tags or template braces: <b>, {{name}}, [[link]]."""
        encoding: Literal["drop", "repair"] | None = None
        """The action on text that was decoded wrongly (`fÃ¼r`), has control or replacement characters, or
        HTML escapes (`&quot;`): drop the pair, or repair it with ftfy (extra `clean`) and drop what
        stays damaged.
        """
        detokenize: bool | Literal["source", "target"] = False
        """Join text that was tokenised (`it 's , here`) to normal text, by sacremoses (extra `clean`); in
        Chinese and Japanese, remove spaces between characters. Of both sides, or of the one named.
        """
