"""A text with markup in it, such as a paragraph with links: what a format's parser makes of a document."""

import html
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html.entities import html5
from typing import ClassVar


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
"""Characters that no text contains. In markup, they enclose the number of a text within the markup."""
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
    """Returns a function that writes the characters of one translation, in order, as the format spells them:
    `&` as `&amp;`.
    """
    finish: Callable[[str], str] = field(default=str, compare=False)
    """Applied to the translation with its markup: divides it into lines, say."""
    inner: "tuple[MarkedText, ...]" = ()
    """The texts within its markup, translated by themselves: that of an image, say."""

    def render(self, inner: Sequence[str] | None = None) -> str:
        """The text as it is written in the document. `inner` replaces the texts within its markup."""
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
    """All marks, nested ones included; each comes before the marks within it."""
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


_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9A-Fa-f]+;?|[A-Za-z][A-Za-z0-9]*;?)")
_LONGEST = 34  # characters of a reference
_USUAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;"}
_TAG_BEGINS = re.compile(r"<[A-Za-z/!?]")
_TEMPLATE = re.compile(r"<\?[^<>]*\?>")


def units(raw: str, is_attribute: bool = False) -> Iterator[tuple[str, str]]:
    """(characters, spelling) of each reference and each other character of a text."""
    return _units(raw, is_attribute) if "&" in raw else zip(raw, raw)


def _units(raw: str, is_attribute: bool) -> Iterator[tuple[str, str]]:
    position = 0
    for match in _REFERENCE.finditer(raw):
        for character in raw[position : match.start()]:
            yield character, character
        position = match.end()
        name, rest = match[0], ""
        if not name.startswith("&#") and not (name.endswith(";") and name[1:] in html5):
            # A few old names need no semicolon, and words may follow them at once.
            known = next((n for n in range(min(len(name), _LONGEST), 1, -1) if name[1:n] in html5), 0)
            name, rest = name[:known], name[known:]
            if is_attribute and (rest or raw[position : position + 1] == "="):
                name, rest = "", match[0]
        value = name if len(name) > _LONGEST else html.unescape(name)
        if value == name:
            name, rest = "", name + rest
        if name:
            yield value, name
        for character in rest:
            yield character, character
    for character in raw[position:]:
        yield character, character


def decoded(raw: str) -> str:
    """The characters that a text of HTML stands for."""
    return "".join(characters for characters, _ in units(raw)) if "&" in raw else raw


class PlainSpelling:
    """The spelling of formats without references: each character stands for itself."""

    special: ClassVar = ""
    """A text that has none of these characters stands for itself."""

    def is_plain(self, raw: str) -> bool:
        """True if each character of a text stands for itself."""
        return not any(character in raw for character in self.special)

    def decoded(self, raw: str) -> str:
        """The characters that a text stands for."""
        return raw if self.is_plain(raw) else "".join(characters for characters, _ in self.units(raw))

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        return zip(raw, raw)

    def add(self, characters: str, raw: str) -> None:
        pass

    def writer(self) -> Callable[[str], str]:
        return str


@dataclass
class Spelling(PlainSpelling):
    """The spellings of special characters in a text, in their order."""

    quote: str = ""
    """The quotes around an attribute's value."""
    is_ascii: bool = False
    """Whether characters outside ASCII are written as references, because the declared encoding of the
    document may not have them.
    """
    known: dict[str, list[str]] = field(default_factory=dict)
    special: ClassVar = "&"
    usual: ClassVar[Mapping[str, str]] = _USUAL
    """How characters are written that cannot stand for themselves."""

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        return units(raw, bool(self.quote))

    def add(self, characters: str, raw: str) -> None:
        if raw != characters or not characters.isalnum():
            self.known.setdefault(characters, []).append(raw)

    def writer(self) -> Callable[[str], str]:
        """Returns a function that writes the parts of one translation in order. A character that also occurs
        in the source is spelled as it is there: its k-th occurrence like the k-th in the source. Other
        characters are written in the usual way.
        """
        left = {character: deque(spellings) for character, spellings in self.known.items()}

        def write(text: str) -> str:
            return "".join(self._written(text, i, left) for i in range(len(text)))

        return write

    def _written(self, text: str, i: int, left: dict[str, deque[str]]) -> str:
        character = text[i]
        spellings = left.get(character)
        if spellings:
            raw = spellings.popleft() if len(spellings) > 1 else spellings[0]
            if raw != character or self._is_safe(text, i):
                return raw
        if character in self.usual:
            return self.usual[character]
        if self.quote and character in self.quote:
            return "&quot;" if character == '"' else "&#39;"
        if self.is_ascii and not character.isascii():
            return f"&#{ord(character)};"
        return character

    def _is_safe(self, text: str, i: int) -> bool:
        """True if a special character that stands alone in the source can stand alone here."""
        if text[i] == "&":
            match = _REFERENCE.match(text, i)
            return match is None or len(match[0]) > _LONGEST or html.unescape(match[0]) == match[0]
        if text[i] == "<":
            return not _TAG_BEGINS.match(text, i) or _TEMPLATE.match(text, i) is not None
        return not (self.is_ascii and not text[i].isascii())


class XmlSpelling(Spelling):
    """The spelling of XML, which knows few references by name."""

    usual: ClassVar = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

    def _is_safe(self, text: str, i: int) -> bool:
        return text[i] not in "&<"


_ESCAPE = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\[uU][0-9a-fA-F]{4}|\\."
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def _unescaped(escape: str) -> str:
    """The character that an escape with a backslash stands for."""
    if escape[1] in "uU" and len(escape) > 2:
        codes = [int(code, 16) for code in re.findall(r"[uU]([0-9a-fA-F]{4})", escape)]
        return b"".join(code.to_bytes(2, "big") for code in codes).decode("utf-16-be", "replace")
    return _ESCAPES.get(escape[1], escape[1])


class BackslashSpelling(Spelling):
    """The spelling of strings between double quotes, with escapes such as `\\n`."""

    special: ClassVar = "\\"
    usual: ClassVar = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
    _unit = re.compile(_ESCAPE + r"|.", re.DOTALL)

    def units(self, raw: str) -> Iterator[tuple[str, str]]:
        for unit in self._unit.findall(raw):
            yield (_unescaped(unit) if unit.startswith("\\") and len(unit) > 1 else unit), unit

    def _is_safe(self, text: str, i: int) -> bool:
        return text[i] not in self.usual
