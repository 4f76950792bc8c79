"""Text in OpenDocument: paragraphs and headings."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, pairwise

from transformer_mt.companions.documents.markup.html_tokens import Token
from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    FIELD,
    READING,
    MarkedText,
    Piece,
    Stays,
    XmlSpelling,
)
from transformer_mt.companions.documents.markup.xml_tokens import end_of, xml_tokens
from transformer_mt.text.literal_text import has_words

_PARAGRAPHS = {
    "text:p", "text:h", "svg:title", "svg:desc", "table:title", "table:desc",
    "presentation:footer-decl", "presentation:header-decl", "presentation:date-time-decl",
}  # fmt: skip
"""Also the texts that are read in place of a picture or a table, and what stands at the edges of slides."""
_TAB = "text:tab"
"""Stands between columns, and before the page number in a table of contents."""
_AROUND = {
    "text:span", "text:a", "text:meta", "text:ruby", "text:ruby-base", "loext:content-control"
}  # fmt: skip
"""Elements around words; others within a paragraph are objects, in which there may be paragraphs: notes."""


def parse_odf(text: str, name: str) -> list[Piece]:
    """The pieces of a part of a document."""
    return list(_pieces(xml_tokens(text, name)))


def parse_book(text: str, name: str) -> list[Piece]:
    """The pieces of a table of contents (EPUB 2), and of the metadata of a book: its title, say."""
    return list(_pieces(xml_tokens(text, name), {"ncx:text", "dc:title", "dc:description"}))


def _pieces(tokens: Sequence[Token], paragraphs: AbstractSet[str] = _PARAGRAPHS) -> Iterator[Piece]:
    position = 0
    while position < len(tokens):
        token = tokens[position]
        yield token.raw
        position += 1
        if token.kind == "start" and token.name in paragraphs:
            end = end_of(tokens, position - 1)
            for is_tab, part in groupby(_run(tokens[position:end]), lambda token: token.name == _TAB):
                run = list(part)
                yield from [tab.raw for tab in run] if is_tab else pieces_of_run(run, _written, XmlSpelling())
            position = end


def _run(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a paragraph."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.kind == "object" and token.name in ("text:s", "text:line-break"):
            yield Token("object", token.raw, "br")
        elif token.kind == "start" and token.name not in _AROUND:
            end = end_of(tokens, position) + 1
            parts = tuple(tokens[position:end])
            yield Token("object", "".join(part.raw for part in parts), token.name, parts)
            position = end
            continue
        else:
            yield token
        position += 1


def _written(token: Token) -> list[Piece]:
    """A token as it is written, with the texts of paragraphs in it. Other text in it stays; the names and
    dates of comments are no text.
    """
    what = READING if token.name == "text:ruby-text" else FIELD
    pieces: list[Piece] = list(_pieces(token.parts)) if token.parts else [token.raw]
    for i, (before, piece) in enumerate(pairwise(pieces), 1):
        if isinstance(piece, MarkedText) or isinstance(before, MarkedText):
            continue
        if not piece.startswith("<") and has_words(piece) and not before.startswith(("<dc:", "<meta:")):
            pieces[i] = Stays(piece, what)
    return pieces
