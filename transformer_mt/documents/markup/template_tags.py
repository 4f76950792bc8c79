"""Tags of template languages in HTML (Jinja, Twig, PHP, ERB) that divide a text."""

import re
from collections.abc import Sequence

from transformer_mt.documents.markup.html_tokens import Token
from transformer_mt.documents.markup.spelling import decoded
from transformer_mt.translation.protected_text import has_words

_CONTROL = re.compile(
    r"(?:\{%[-~+]?|<\?(?:php\b)?|<%[-_]?)\s*(?:"
    r"(?P<middle>(?:elif|elsif|elseif|else|when|default)\b|\}\s*else)"
    r"|(?P<end>end(?:if|for|foreach|while|switch|unless|case|block|each)?\b|\})"
    r"|(?P<begin>(?:if|unless|for|foreach|while|switch|case|block)\b))"
)
"""A template tag that divides, ends or begins a part that is conditional or repeated."""
_LONGEST = 20
"""Tokens of a part that may stand within a sentence: it is looked at whole."""


def dividing_tags(tokens: Sequence[Token]) -> set[int]:
    """The numbers of the tags that end a text: those of conditional and repeated parts, except where a part
    stands within a sentence.
    """
    found: set[int] = set()
    begun: list[list[int]] = []
    """The tags of each part that has no end yet."""
    for i, token in enumerate(tokens):
        if token.kind != "object" or not (tag := _CONTROL.match(token.raw)):
            continue
        if tag["begin"]:
            begun.append([i])
        elif not begun:
            found.add(i)
        elif tag["middle"]:
            begun[-1].append(i)
        else:
            part = [*begun.pop(), i]
            if len(part) > 2 or not _is_within_sentence(tokens, part[0], i):
                found.update(part)
    return found.union(*begun)


def _is_within_sentence(tokens: Sequence[Token], begin: int, end: int) -> bool:
    """Whether the part between two tags has no words, or continues the word before it, as a plural does."""
    if end - begin > _LONGEST:
        return False
    inside = decoded("".join(token.raw for token in tokens[begin:end] if token.kind == "text"))
    before = tokens[begin - 1].raw[-1:] if begin else ""
    return not has_words(inside) or (before.isalpha() and inside[:1].isalpha())
