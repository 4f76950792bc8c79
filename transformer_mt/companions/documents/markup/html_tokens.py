"""Split HTML into tokens whose concatenation is the document. Follows the HTML standard, except that a
template expression (`<?= ?>`, `<% %>`, `{% %}`) is one token.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from transformer_mt.companions.documents.markup.html_names import OBJECTS, VOID

# What may contain a > that does not end the tag.
# A template ends on its line, and before an element does: what only looks like one hides no text.
_INSIDE = r"(?:(?!</|%[}>]|\}\}|\#\})[^\n]){0,200}"
_PERCENT, _BRACES, _ASP = rf"\{{%{_INSIDE}%\}}", rf"\{{\{{{_INSIDE}\}}\}}", rf"<%{_INSIDE}%>"
_PHP = r"<\?[^?]{0,500}(?:\?(?!>)[^?]{0,500}){0,20}\?>"
_TEMPLATE = rf"{_PERCENT}|{_BRACES}|{_PHP}|{_ASP}"
_VALUE = r"=\s*(?:\"[^\"]*\"|'[^']*'|(?![\"'])(?:[^\s>{<]|\{(?![%{])|<(?![?%]))+)?"
_ATTRIBUTES = rf"(?:{_VALUE}|{_TEMPLATE}|[^>=])*+"
_TOKEN = re.compile(
    rf"""
    (?P<object><!--(?:>|->|.*?(?:--!?>|\Z)) | {_PHP} | <[?!][^>]*>? | {_ASP} | {_PERCENT}
      | \{{\#{_INSIDE}\#\}})
    | (?P<end></(?P<end_name>[A-Za-z][^\s/>]*){_ATTRIBUTES}(?:>|\Z))
    | (?P<stray></[^>]*>?)
    | (?P<start><(?P<name>[A-Za-z][^\s/>]*){_ATTRIBUTES}(?:>|\Z))
    """,
    re.DOTALL | re.VERBOSE,
)
# Their content is text without markup.
_RAW = frozenset({"script", "style", "xmp", "iframe", "noembed", "noframes", "textarea", "title"})
_ENDS_IN_VALUE = re.compile(r"=\s*[^\s\"'>=]+/>\Z")
_SCRIPT = re.compile(r"<!--|-->|<(/?)script(?=[\s/>])", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    rf"(?:{_TEMPLATE})|([^\s\"'>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|((?![\"'])[^\s>]+)))?", re.DOTALL
)


class Token(NamedTuple):
    """A part of a document."""

    kind: Literal["text", "start", "end", "object", "literal"]
    """A text, a tag, what is within a sentence but no text (a comment, an image), or text that stays
    (code).
    """
    raw: str
    """As it is written."""
    name: str = ""
    """Name of the element in lower case; empty for text, comments and templates."""
    parts: "tuple[Token, ...]" = ()
    """The tokens of an element that is one token."""

    def attributes(self) -> "Iterator[tuple[str, str, int, int]]":
        """(name in small letters, value as written, its begin and end in `raw`, quotes included)."""
        for match in _ATTRIBUTE.finditer(self.raw, len(self.name) + 1):
            if match[1] is None:
                continue
            number = next((n for n in (2, 3, 4) if match[n] is not None), 0)
            quotes = number in (2, 3)
            begin, end = match.span(number) if number else (match.end(), match.end())
            yield match[1].lower(), match[number] if number else "", begin - quotes, end + quotes

    def attribute(self, name: str) -> str | None:
        """The value of an attribute, whatever its prefix, as it is written; None without it."""
        values = (value for key, value, *_ in self.attributes() if key.rpartition(":")[2] == name)
        return next(values, None)


def tokens_of(html: str, is_xml: bool = False) -> Iterator[Token]:
    """The tokens of a document or fragment. In XHTML (`is_xml`) an element such as `<script/>` is empty."""
    position = 0
    while match := _TOKEN.search(html, position):
        if match.start() > position:
            yield Token("text", html[position : match.start()])
        position = match.end()
        if match["end"]:
            yield Token("end", match[0], match["end_name"].lower())
        elif match["start"] is None or not match[0].endswith(">"):  # an unfinished tag at the end is no tag
            yield Token("object", match[0])
        else:
            name = match["name"].lower()
            # In XML values have quotes: href=a/> is HTML after all.
            is_closed = match[0].endswith("/>") and not _ENDS_IN_VALUE.search(match[0])
            is_empty = is_xml and is_closed and name not in VOID
            if is_empty and name in _RAW | OBJECTS:
                yield Token("object", match[0], name)
                continue
            yield Token("start", match[0], name)
            if is_empty:
                yield Token("end", "", name)
                continue
            end = _end_of_raw(html, position, name)
            if end > position:
                yield Token("text" if name == "title" else "object", html[position:end])
                position = end
    if position < len(html):
        yield Token("text", html[position:])


def _end_of_raw(html: str, begin: int, name: str) -> int:
    """End of the content of an element without markup; `begin` for other elements."""
    if name == "plaintext":
        return len(html)
    if name not in _RAW:
        return begin
    if name == "script":
        return _end_of_script(html, begin)
    end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(html, begin)
    return end.start() if end else len(html)


def _end_of_script(html: str, begin: int) -> int:
    """In a comment within a script, <script> and </script> are a pair."""
    is_comment = is_nested = False
    for mark in _SCRIPT.finditer(html, begin):
        if mark[0] in ("<!--", "-->"):
            is_comment, is_nested = mark[0] == "<!--", is_nested and mark[0] == "<!--"
        elif not mark[1]:
            is_nested = is_comment
        elif is_nested:
            is_nested = False
        else:
            return mark.start()
    return len(html)
