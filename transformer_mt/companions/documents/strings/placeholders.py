"""Placeholders of programs that would be words in other texts: they stay in the texts of interfaces."""

import re
from collections.abc import Iterable, Iterator

from transformer_mt.companions.documents.markup.html_tokens import Token

# Laravel's `:name`, i18next's `__name__`, `$NAME$` and `$1` of browsers' extensions, `@:key` of Vue.
_PLACEHOLDER = re.compile(
    r"((?<![\w:/]):[A-Za-z_]\w*:?|(?<!\w)__[A-Za-z][\w.]*?__(?!\w)|\$[A-Za-z_]\w*\$|\$\d(?![\d.,])"
    r"|@(?:\.\w+)?:(?:\(\S+?\)|\w+(?:\.\w+)*))"
)


def with_placeholders(tokens: Iterable[Token]) -> Iterator[Token]:
    """The tokens, with placeholders in texts as text that stays."""
    for token in tokens:
        if token.kind != "text":
            yield token
            continue
        for i, part in enumerate(_PLACEHOLDER.split(token.raw)):
            if i % 2:
                yield Token("literal", part, "code", (Token("text", part),))
            elif part:
                yield Token("text", part)
