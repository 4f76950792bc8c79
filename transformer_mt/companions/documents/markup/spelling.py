"""How characters are written in HTML: read from a text, and written in its translation as they were there."""

import html
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html.entities import html5
from typing import ClassVar

_REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9A-Fa-f]+;?|[A-Za-z][A-Za-z0-9]*;?)")
_LONGEST = 34  # characters of a reference
_USUAL = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;"}
_TAG_BEGINS = re.compile(r"<[A-Za-z/!?]")
_TEMPLATE = re.compile(r"<\?[^<>]*\?>")


def units(raw: str, is_attribute: bool = False) -> Iterator[tuple[str, str]]:
    """(characters, as they are written) of a text: references one by one, other characters one by one."""
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
    """Characters without which a text is written as it is."""

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
    """Whether other characters are written as references: the document is declared to be in an encoding that
    may not have them.
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
        """Writes the parts of one translation in their order. A character that the source has is written as
        it is there, the k-th as the k-th; others in the usual way.
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
