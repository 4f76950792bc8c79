"""Split XML into tokens whose concatenation is the document."""

from collections.abc import Sequence
from xml.parsers import expat

from transformer_mt.documents.markup.html_tokens import Token
from transformer_mt.errors import InputError

# Elements inside one another, as many as libxml2 allows: the time to read a document grows with it.
_DEEPEST = 256


def xml_tokens(text: str, name: str) -> list[Token]:
    """The tokens of a document; element names keep their prefix and capitals, an empty element is an object.
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

    def _start(self, element: str, _: object) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(f"{self._name}: elements must be at most {_DEEPEST} deep, but are deeper")
        self._next("start", element)

    def _end(self, element: str) -> None:
        self._depth -= 1
        position = self._parser.CurrentByteIndex
        if self._kind == "start" and self._raw[position - 2 : position] == b"/>":
            self._kind = "object"
            self._add(position)
        else:
            self._next("end", element)

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
