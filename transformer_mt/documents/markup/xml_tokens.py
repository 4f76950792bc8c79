"""Split XML into tokens whose concatenation is the document."""

from collections.abc import Callable, Sequence
from typing import Any
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
    raw = text.encode(errors="surrogatepass")
    events: list[tuple[int, str, str]] = []
    depth = 0
    parser = expat.ParserCreate("utf-8")

    def at(kind: str) -> Callable[..., None]:
        def add(element: str = "", *_: Any) -> None:
            nonlocal depth
            depth += {"start": 1, "end": -1}.get(kind, 0)
            if depth > _DEEPEST:
                raise InputError(f"{name}: elements must be at most {_DEEPEST} deep, but are deeper")
            events.append((parser.CurrentByteIndex, kind, element if kind in ("start", "end") else ""))

        return add

    def refuse(*_: Any) -> None:
        raise InputError(f"{name}: must not define XML entities, but does; write the characters themselves")

    parser.StartElementHandler, parser.EndElementHandler = at("start"), at("end")
    parser.CharacterDataHandler = at("text")
    parser.StartCdataSectionHandler, parser.EndCdataSectionHandler = at("cdata"), at("after cdata")
    parser.DefaultHandler = at("object")
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(raw, True)
    except expat.ExpatError as error:
        problem = expat.errors.messages[error.code]
        raise InputError(f"{name}:{error.lineno}: must be well-formed XML, but is not: {problem}") from None
    return _tokens(raw, events)


def _tokens(raw: bytes, events: Sequence[tuple[int, str, str]]) -> list[Token]:
    tokens: list[Token] = []
    begin, cdata = 0, None
    ends = [*(event[0] for event in events[1:]), len(raw)]
    for (position, kind, element), end in zip(events, ends):
        if kind == "cdata":
            cdata = position
        if kind == "after cdata":
            end = max(end, position + len("]]>"))
            tokens.append(Token("object", raw[cdata:end].decode(errors="surrogatepass"), "cdata"))
            cdata, begin = None, end
            continue
        if cdata is not None:
            continue
        written = raw[max(begin, position) : end].decode(errors="surrogatepass")
        begin = max(begin, end)
        if kind == "end" and not written:  # of an empty element
            tokens[-1] = Token("object", tokens[-1].raw, tokens[-1].name)
        elif kind == "text" and tokens and tokens[-1].kind == "text":
            tokens[-1] = Token("text", tokens[-1].raw + written)
        elif written:
            tokens.append(Token(kind, written, element))  # type: ignore[arg-type]
    before = raw[: events[0][0]] if events else raw
    return [Token("object", before.decode(errors="surrogatepass")), *tokens] if before else tokens


def end_of(tokens: Sequence[Token], start: int) -> int:
    """The number of the end tag of the element that begins at the token `start`."""
    depth = 0
    for number in range(start, len(tokens)):
        depth += {"start": 1, "end": -1}.get(tokens[number].kind, 0)
        if depth == 0:
            return number
    raise AssertionError("the document is well-formed")
