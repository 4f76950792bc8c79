"""Words, numbers and punctuation marks of a text."""

import regex

from transformer_mt.text.unsegmented import UNSEGMENTED

Span = tuple[int, int]
"""(begin, end) of characters."""

# A number, one character of a script without spaces, a word, or a punctuation mark.
_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--{UNSEGMENTED}]"
_WORDS = regex.compile(
    rf"\p{{N}}+(?:[.,:]\p{{N}}+)*|{UNSEGMENTED}\p{{M}}*|{_LETTER}+(?:['’-]{_LETTER}+)*|[^\s]", regex.VERSION1
)


def find_words(text: str) -> list[Span]:
    """The words, numbers and punctuation marks of a text; in a script without spaces, its characters."""
    return [match.span() for match in _WORDS.finditer(text)]
