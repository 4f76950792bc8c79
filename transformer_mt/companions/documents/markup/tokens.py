"""Split HTML or XML into tokens whose concatenation is the document.

HTML follows its standard, except that a template expression (`<?= ?>`, `<% %>`, `{% %}`) is one token.
"""

import codecs
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Event
from typing import Literal, NamedTuple
from xml.parsers import expat

from transformer_mt.errors import InputError

_STOP: ContextVar[Event | None] = ContextVar("stop", default=None)


class StoppedError(Exception):
    """Nobody waits for the document any more."""


@contextmanager
def stopped_by(event: Event | None) -> Iterator[None]:
    token = _STOP.set(event)
    try:
        yield
    finally:
        _STOP.reset(token)


def go_on() -> None:
    """StoppedError if the reading is to stop."""
    if (event := _STOP.get()) is not None and event.is_set():
        raise StoppedError


CONTROLS = frozenset({"button", "label", "meter", "output", "progress"})
"""Elements of forms that stand within a sentence only if it has other words."""
# Elements that stand within a sentence; all others end it. The HTML standard's phrasing content, and what it
# was before.
INLINE = CONTROLS | {
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "dfn", "em", "font", "i",
    "ins", "mark", "nobr", "q", "rb", "ruby", "slot", "small", "span", "strong", "sub", "sup", "time", "tt",
    "u",
}  # fmt: skip
CODE = frozenset({"code", "kbd", "samp", "var"})
VOID = frozenset({
    "area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input", "keygen",
    "link", "meta", "param", "source", "track", "wbr",
})  # fmt: skip
# Within a sentence, but without text of it.
VOID_OBJECTS = frozenset({"embed", "img", "input", "wbr"})
REMOVED = frozenset({"del", "s", "strike"})
"""Text that was taken out of the sentence around it."""
OBJECTS = REMOVED | frozenset({
    "audio", "canvas", "datalist", "iframe", "map", "math", "noembed", "object", "picture", "rp", "rt", "rtc",
    "script", "select", "style", "svg", "template", "video",
})  # fmt: skip
READINGS = frozenset({"rp", "rt", "rtc"})
"""The readings of words in East Asian texts; their end tags may be left out."""
WITH_TEXTS = REMOVED | frozenset({"datalist", "select"})
"""Objects that have texts of their own."""
WITH_ATTRIBUTES = frozenset({"audio", "canvas", "iframe", "map", "object", "picture", "video"})
"""Objects whose elements have texts in their attributes."""
BLOCKS_THAT_STAY = frozenset({"listing", "noscript", "plaintext", "pre", "textarea", "xmp"})

# For each start tag: the open elements that it closes, and the elements that end the search for them.
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "center", "details", "dialog", "dir", "div", "dl",
    "fieldset", "figcaption", "figure", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hgroup", "hr",
    "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary", "table", "ul", "li", "dd", "dt",
    "listing", "plaintext", "xmp",
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_SECTIONS = frozenset({"tbody", "thead", "tfoot"})
_OF_CELLS = frozenset({"button", "table", "td", "th", "caption", "object"})
_OF_ROWS = _CELLS | {"tr", "caption", "colgroup"}
_ENDED: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    **{name: (frozenset({"p"}), _OF_CELLS) for name in _BLOCKS},
    "li": (frozenset({"li", "p"}), frozenset({"ul", "ol", "menu", "table", "td"})),
    **{name: (frozenset({"dt", "dd", "p"}), frozenset({"dl", "table", "td"})) for name in ("dt", "dd")},
    **{name: (_CELLS, frozenset({"table"})) for name in _CELLS},
    "tr": (_OF_ROWS, frozenset({"table"})),
    **{name: (_OF_ROWS | _SECTIONS, frozenset({"table"})) for name in _SECTIONS},
    "option": (frozenset({"option"}), frozenset({"select", "datalist"})),
    "optgroup": (frozenset({"option", "optgroup"}), frozenset({"select"})),
    "body": (frozenset({"head"}), frozenset()),
    **{name: (frozenset({"rt", "rp"}), frozenset({"ruby"})) for name in ("rt", "rp")},
}  # fmt: skip


def ended_by(name: str, open_elements: list[str]) -> int:
    """Number of open elements that stay open when an element of this name begins. For example, a list ends
    an open paragraph, and a table row ends the cell before it.
    """
    ended, border = _ENDED.get(name, (frozenset(), frozenset()))
    stay = len(open_elements)
    for i in reversed(range(len(open_elements))):
        if open_elements[i] in border:
            break
        if open_elements[i] in ended:
            stay = i
    return stay


_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_DECLARED = re.compile(
    rb"<meta\b[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)|<\?xml\b[^>]*?encoding\s*=\s*[\"']([\w.:-]+)",
    re.IGNORECASE,
)
_SEARCHED = 1024  # bytes in which browsers look for a declaration
# What browsers take these for.
_ALIASES = {
    **dict.fromkeys(("iso-8859-1", "iso8859-1", "latin1", "latin-1", "l1", "us-ascii", "ascii"), "cp1252"),
    **dict.fromkeys(("gb2312", "gbk", "gb_2312-80", "x-gbk"), "gb18030"),
    **dict.fromkeys(("shift-jis", "shift_jis", "sjis", "x-sjis"), "cp932"),
    **dict.fromkeys(("euc-kr", "ks_c_5601-1987", "korean"), "cp949"),
    **dict.fromkeys(("windows-874", "tis-620", "iso-8859-11"), "cp874"),
    **dict.fromkeys(("windows-949", "ks_c_5601-1989", "iso-ir-149"), "cp949"),
    **dict.fromkeys(("windows-31j", "ms_kanji"), "cp932"),
    **dict.fromkeys(("x-cp1252", "cp819", "windows-1252"), "cp1252"),
    "iso-8859-8-i": "iso8859-8",
    "x-mac-cyrillic": "mac-cyrillic",
    "macintosh": "mac-roman",
    **dict.fromkeys(("utf-16", "utf-16le", "utf-16be"), "utf-8"),  # such a page could not declare it in ASCII
}


_KNOWN = frozenset({
    "utf-8", "utf-16-le", "utf-16-be", "gb18030", "big5", "big5hkscs", "euc_jp", "iso2022_jp", "cp932",
    "cp949", "koi8-r", "koi8-u", "cp866", "cp874", "mac-roman", "mac-cyrillic",
    *(f"cp{n}" for n in range(1250, 1259)), *(f"iso8859-{n}" for n in range(2, 17) if n != 12),
})  # fmt: skip
"""The encodings that browsers know, by Python's names."""


@dataclass(frozen=True)
class Encoding:
    """How a page is read and written."""

    name: str
    is_ascii: bool = False
    """Whether translations are written in ASCII, because the page is not in the encoding that it declares."""


def decode_page(raw: bytes, location: str) -> tuple[str, Encoding]:
    """The text of a page, and its encoding. InputError if it is neither what it declares nor UTF-8."""
    mark = next((mark for mark in _BYTE_ORDER_MARKS if raw.startswith(mark)), None)
    declared = _declared(raw)
    if mark is None and declared not in (None, "utf-8"):
        try:
            return raw.decode("utf-8"), Encoding("ascii" if raw.isascii() else "utf-8", is_ascii=True)
        except UnicodeDecodeError:
            pass
    name = _BYTE_ORDER_MARKS[mark] if mark else declared or "utf-8"
    if name not in _KNOWN:
        raise InputError(f"{location}: must declare an encoding that this program knows, but declares {name}")
    try:
        return raw.decode(name), Encoding("latin-1" if name == "cp1252" and _is_xml_in_latin_1(raw) else name)
    except UnicodeDecodeError as error:
        if name == "cp1252":  # a few bytes stand for control characters
            return raw.decode("latin-1"), Encoding("latin-1")
        line, byte = raw.count(b"\n", 0, error.start) + 1, raw[error.start]
        raise InputError(
            f"{location}:{line}: must be {name.upper()}, but byte {byte:#04x} is not; convert the file "
            "(iconv) first, or declare its encoding"
        ) from None


def _is_xml_in_latin_1(raw: bytes) -> bool:
    """True if XML declares ISO-8859-1, which browsers take for Windows-1252 but XML parsers do not."""
    declaration = _DECLARED.search(raw[:_SEARCHED])
    label = (declaration and declaration[2]) or b"windows-1252"
    return b"1252" not in label


def _declared(raw: bytes) -> str | None:
    """The encoding that the page declares, by Python's name where it is known."""
    declaration = _DECLARED.search(raw[:_SEARCHED])
    if declaration is None:
        return None
    label = (declaration[1] or declaration[2]).decode("ascii", "replace").lower()
    label = _ALIASES.get(label, label)
    try:
        return codecs.lookup(label).name
    except LookupError:
        return label


# Parts of a tag that may contain a > which does not end it.
# A template must end on its line and before any end tag: text that only looks like one must not be hidden.
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
    """If the token is a whole element, the tokens of that element."""

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
        """The value of an attribute as it is written, whatever its name's prefix; None if it is missing."""
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
    """End of a script's content. Within a comment in it, a </script> after a <script> does not end it."""
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


# Elements inside one another, as many as libxml2 allows: the time to read a document grows with it.
_DEEPEST = 256
_OOXML = "http://schemas.openxmlformats.org/", "http://purl.oclc.org/ooxml/"  # transitional and strict
_ODF = "urn:oasis:names:tc:opendocument:xmlns:{}:1.0"
_PREFIXES = {
    **{
        f"{base}{name}{year}main": prefix
        for base, year in zip(_OOXML, ("/2006/", "/"))
        for name, prefix in {"wordprocessingml": "w", "drawingml": "a", "spreadsheetml": "x"}.items()
    },
    **{f"{base}drawingml{year}chart": "c" for base, year in zip(_OOXML, ("/2006/", "/"))},
    "http://schemas.openxmlformats.org/officeDocument/2006/math": "m",
    "http://purl.oclc.org/ooxml/officeDocument/math": "m",
    "http://schemas.openxmlformats.org/presentationml/2006/main": "p",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    _ODF.format("text"): "text",
    _ODF.format("svg-compatible"): "svg",
    "http://www.daisy.org/z3986/2005/ncx/": "ncx",
    "http://purl.org/dc/elements/1.1/": "dc",
}
"""The prefixes that names have here, whatever they are in the document."""


def xml_tokens(text: str, name: str) -> list[Token]:
    """The tokens of a document. Element names keep their capitals; in the namespaces of _PREFIXES they get
    the prefix given there, in others they keep their own. An empty element is an object.
    InputError if the document is not well-formed, is nested too deep, or defines entities, which could read
    files or grow without bound.
    """
    tokenizer = _Tokenizer(text.encode(errors="surrogatepass"), name)
    try:
        return tokenizer.tokens()
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        raise InputError(f"{name}:{error.lineno}: is not well-formed XML: {problem}") from None


class _Tokenizer:
    """Makes a token of what is between two events of the parser."""

    def __init__(self, raw: bytes, name: str) -> None:
        self._raw, self._name, self._depth = raw, name, 0
        self._tokens: list[Token] = []
        self._prefixes: dict[str, str] = {}
        self._outer: list[tuple[int, dict[str, str]]] = []
        """The prefixes outside of each element that declares some, and its depth."""
        self._names: dict[str, str] = {}
        self._begin, self._kind, self._element = 0, "object", ""
        """The token that has begun."""
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        parser.StartCdataSectionHandler = lambda: self._next("object", "cdata")
        parser.EndCdataSectionHandler = lambda: self._next("object", after=len("]]>"))
        parser.DefaultHandler = lambda other: self._next("object")
        parser.EntityDeclHandler = self._refuse

    def tokens(self) -> list[Token]:
        self._parser.Parse(self._raw, True)
        self._add(len(self._raw))
        return self._tokens

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        go_on()
        self._depth += 1
        if declared := {key[6:]: uri for key, uri in attributes.items() if key.startswith("xmlns")}:
            self._outer.append((self._depth, self._prefixes))
            usual = {prefix: _PREFIXES.get(uri, prefix) for prefix, uri in declared.items()}
            self._prefixes, self._names = {**self._prefixes, **usual}, {}
        if self._depth > _DEEPEST:
            raise InputError(f"{self._name}: elements must be at most {_DEEPEST} deep, but are deeper")
        self._next("start", self._name_of(element))

    def _end(self, element: str) -> None:
        name = self._name_of(element)
        if self._outer and self._outer[-1][0] == self._depth:
            (_, self._prefixes), self._names = self._outer.pop(), {}
        self._depth -= 1
        position = self._parser.CurrentByteIndex
        if self._kind == "start" and self._raw[position - 2 : position] == b"/>":
            self._kind = "object"
            self._add(position)
        else:
            self._next("end", name)

    def _name_of(self, element: str) -> str:
        if element not in self._names:
            prefix, _, local = element.rpartition(":")
            prefix = self._prefixes.get(prefix, prefix)
            self._names[element] = f"{prefix}:{local}" if prefix else local
        return self._names[element]

    def _text(self, _: str) -> None:
        # The parser gives a text in parts. Text in a CDATA section does not become a text token.
        if self._kind != "text" and self._element != "cdata":
            self._next("text")

    def _refuse(self, *_: object) -> None:
        raise InputError(
            f"{self._name}: must not define XML entities, but does; write the characters themselves"
        )

    def _next(self, kind: str, element: str = "", after: int = 0) -> None:
        self._add(self._parser.CurrentByteIndex + after)
        self._kind, self._element = kind, element

    def _add(self, end: int) -> None:
        if end > self._begin:
            written = self._raw[self._begin : end].decode(errors="surrogatepass")
            self._tokens.append(Token(self._kind, written, self._element))  # type: ignore[arg-type]
            self._begin, self._kind, self._element = end, "object", ""


def end_of(tokens: Sequence[Token], start: int) -> int:
    """The number of the end tag of the element that begins at the token `start`."""
    depth = 0
    for number in range(start, len(tokens)):
        depth += {"start": 1, "end": -1}.get(tokens[number].kind, 0)
        if depth == 0:
            return number
    raise AssertionError("the document is well-formed")
