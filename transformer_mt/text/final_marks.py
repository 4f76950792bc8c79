"""Marks that end a sentence, in all scripts: the one list for all that looks for them."""

import regex

from transformer_mt.text.languages import base_code

_CLOSING = r"[\p{Pe}\p{Pf}\p{Pi}\"'\s]*$"
# Unicode's Sentence_Terminal, the ellipses, Tibetan's stroke and Greek's question mark.
_MARKS = r"\p{Sentence_Terminal}…‥།༎\u037e"
FINAL_MARK = f"[{_MARKS}]"
# Each run of marks is tried once, from its beginning: the time grows with the length alone.
_END, _GREEK_END = (
    regex.compile(rf"(?<![{marks}])([{marks}]++){_CLOSING}") for marks in (_MARKS, _MARKS + ";")
)


def end_pattern(language: str) -> "regex.Pattern[str]":
    """Pattern of the marks at the end of a text, its first group, with what closes after them."""
    return _GREEK_END if base_code(language) == "el" else _END


def final_mark(text: str, language: str = "") -> tuple[int, int] | None:
    """The span of the marks at the end of the text, before closing quotes and brackets; None without one. In
    Greek a semicolon asks.
    """
    match = end_pattern(language).search(text)
    return None if match is None else match.span(1)
