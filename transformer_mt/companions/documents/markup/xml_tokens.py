"""Split XML into tokens whose concatenation is the document."""

from collections.abc import Sequence
from xml.parsers import expat

from transformer_mt.companions.documents.markup.html_tokens import Token, go_on
from transformer_mt.errors import InputError

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
    """The tokens of a document; element names keep their capitals, those of usual namespaces have the usual
    prefix, others their own. An empty element is an object.
    InputError if it is not well-formed, is nested too deep, or defines entities, which could read files or
    grow without bound.
    """
    tokenizer = _Tokenizer(text.encode(errors="surrogatepass"), name)
    try:
        return tokenizer.tokens()
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        raise InputError(f"{name}:{error.lineno}: must be well-formed XML, but is not: {problem}") from None


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
        # The parser gives a text in parts; that in a section of CDATA is not one.
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
