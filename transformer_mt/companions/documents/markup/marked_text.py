"""A text with markup in it, such as a paragraph with links: what a format's parser makes of a document."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mark:
    """Markup around some characters of a text, or at one position."""

    begin: int
    end: int
    opening: str
    """The markup before the characters, as in the document; a mark at one position has only this."""
    closing: str = ""
    children: "tuple[Mark, ...]" = ()
    """The marks within it."""
    verbatim: str = ""
    """Written in place of the mark and its characters, which are then not translated: code, say."""
    space: str | None = None
    """Replacement for the single space that the mark covers, such as a line break; None for other marks."""
    holds: tuple[bool, bool] = (False, False)
    """(before, after): True if the mark includes a space at that side of its words."""

    @property
    def is_literal(self) -> bool:
        return bool(self.verbatim)

    @property
    def is_point(self) -> bool:
        return self.begin == self.end and self.space is None


OPEN, CLOSE = "\ufdd0", "\ufdd1"
"""They stand in no text: in markup they enclose the number of a text within it."""
_NUMBER = re.compile(f"{OPEN}(\\d+){CLOSE}")
BYTE_ORDER_MARK = "\ufeff"
BREAK = "\ufdd2"
"""Stands between the parts of a text that are apart in the document, such as subtitles."""


@dataclass(frozen=True)
class MarkedText:
    """One piece of a document that is translated by itself."""

    text: str
    """On one line."""
    marks: tuple[Mark, ...] = ()
    """Outermost ones, in the order of the document."""
    before: str = ""
    """The text that stays before the translation: white space, markup around the whole text."""
    after: str = ""
    writer: Callable[[], Callable[[str], str]] = field(default=lambda: str, compare=False)
    """Makes what writes the characters of one translation, in their order, as the format does: `&` as
    `&amp;`.
    """
    finish: Callable[[str], str] = field(default=str, compare=False)
    """Applied to the translation with its markup: divides it into lines, say."""
    inner: "tuple[MarkedText, ...]" = ()
    """The texts within its markup, translated by themselves: that of an image, say."""

    def render(self, inner: Sequence[str] | None = None) -> str:
        """The text as it is written in the document, with what the texts within its markup became."""
        body = _render(self.text, self.marks, 0, len(self.text), self.writer())
        written = self.before + self.finish(body) + self.after
        texts = [text.render() for text in self.inner] if inner is None else inner
        return _NUMBER.sub(lambda match: texts[int(match[1])], written) if texts else written

    def literals(self) -> list[str]:
        """The texts of its marks that are not translated."""
        return [self.text[mark.begin : mark.end] for mark in flat(self.marks) if mark.is_literal]

    def translatable(self) -> str:
        """Its characters without those that are not translated."""
        parts, start = [], 0
        for mark in sorted(flat(self.marks), key=lambda mark: mark.begin):
            if mark.is_literal:
                parts.append(self.text[start : mark.begin])
                start = max(start, mark.end)
        return "".join([*parts, self.text[start:]])


class Stays(str):
    """A part of a document with text that is not translated, as it is written."""

    what: str
    """The kind of the text, in the plural."""

    def __new__(cls, written: str, what: str) -> "Stays":
        stays = super().__new__(cls, written)
        stays.what = what
        return stays


READING = "readings of words (ruby)"
"""In East Asian texts: they belong to the words of the source."""
FIELD = "texts of fields"
"""A program writes them again: the number of a chapter, a name from elsewhere."""
Piece = str | MarkedText
"""A part of a document: markup as it is written, or a text to translate."""


def flat(marks: Sequence[Mark]) -> list[Mark]:
    """The marks and those within them, each before its own."""
    return [nested for mark in marks for nested in (mark, *flat(mark.children))]


def _render(text: str, marks: Sequence[Mark], begin: int, end: int, escape: Callable[[str], str]) -> str:
    parts: list[str] = []
    for mark in sorted(marks, key=lambda mark: (mark.begin, mark.end)):  # stable: points stay in their order
        parts.append(escape(text[begin : mark.begin]))
        if mark.space is not None:
            parts.append(mark.space)
        else:
            inner = "" if mark.verbatim else _render(text, mark.children, mark.begin, mark.end, escape)
            parts.append(mark.verbatim or mark.opening + inner + mark.closing)
        begin = mark.end
    return "".join([*parts, escape(text[begin:end])])
