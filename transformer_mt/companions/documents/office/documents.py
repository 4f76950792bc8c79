"""Documents that are zip files: reads their texts as one text, writes them back; parses OpenDocument."""

import html
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby, pairwise
from pathlib import PurePosixPath
from urllib.parse import unquote

from transformer_mt.companions.documents.formats import MOST_BYTES, check_size
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.inline_run import pieces_of_run
from transformer_mt.companions.documents.markup.marked_text import (
    FIELD,
    READING,
    MarkedText,
    Piece,
    Stays,
    XmlSpelling,
)
from transformer_mt.companions.documents.markup.tokens import Token, decode_page, end_of, xml_tokens
from transformer_mt.companions.documents.office.ooxml import parse_ooxml
from transformer_mt.companions.documents.office.package import (
    Member,
    packed,
    read_members,
    shown_words,
    turned,
)
from transformer_mt.errors import InputError
from transformer_mt.text.sentences import has_words

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
"""Elements around words. Others within a paragraph are objects; some, such as notes, contain paragraphs."""


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
    """The pieces of a token: its markup, and the texts of the paragraphs in it. Other text in it stays; the
    names and dates of comments do not count as text.
    """
    what = READING if token.name == "text:ruby-text" else FIELD
    pieces: list[Piece] = list(_pieces(token.parts)) if token.parts else [token.raw]
    for i, (before, piece) in enumerate(pairwise(pieces), 1):
        if isinstance(piece, MarkedText) or isinstance(before, MarkedText):
            continue
        if not piece.startswith("<") and has_words(piece) and not before.startswith(("<dc:", "<meta:")):
            pieces[i] = Stays(piece, what)
    return pieces


_BETWEEN = "\0"
"""Separates the members; it cannot occur in XML."""

_NAMED = "cells whose text a formula, a list, a filter or a table names"
_NAMES_TEXTS = re.compile(r"xl/(?:workbook|(?:tables|worksheets|pivotCache)/[^_/]+)\.xml", re.IGNORECASE)
_NAME = re.compile(
    r'<(?:\w+:)?(?:tableColumn|filter|customFilter|s|pivotFilter)\b[^>]*?\s(?:name|val|v|stringValue1)="([^"]*)"'
    r"|<(?:\w+:)?(?:f|formula[12]?|definedName|calculatedColumnFormula)\b[^>]*>([^<]*)<"
)
_OTHER_MARKUP = {
    rb"<(?:\w+:)?oMath[\s>]": "formulas",
    rb"<(?:\w+:)?altChunk[\s/>]": "documents within the document (altChunk)",
    rb"<(?:\w+:rt|(?:\w+:)?rPh)[\s>]": READING,
    rb't="str"[^<>]*>\s*<(?:\w+:)?f[\s>/](?:(?!</?(?:\w+:)?c[\s>]).)*?'
    rb"<(?:\w+:)?v>[^<]*[A-Za-z\x80-\xff]{2}": ("texts that formulas make"),
}
"""Elements with text that is not translated; package.py has attributes and short texts."""
_SHOWN_IN = re.compile(r"(?!.*_rels/|(?:word|ppt|xl)/(?:theme|media)/).*\.(?:xml|vml)", re.IGNORECASE)
_SVG_TEXT = re.compile(rb"<(?:\w+:)?(?:text|tspan|title)(?:\s[^<>]*)?>[^<]*[A-Za-z\x80-\xff]{2}")
_SIGNATURES = re.compile(
    r"_xmlsignatures/.*|META-INF/(?:documentsignatures|macrosignatures|packagesignatures|signatures)\.xml"
)
_OF_SIGNATURES = re.compile(
    r"<(?:\w+:)?(?:Override|Relationship|file-entry)\s[^<>]*"
    r"(?:_xmlsignatures/|digital-signature|(?:document|macro|package)?signatures\.xml)[^<>]*/>"
)
_EMBEDDED = re.compile(r"(?:word|ppt|xl)/embeddings/.+")
_REPLACEMENT = re.compile(r"(?:\./)?ObjectReplacements/(.+)")
"""The picture of an object such as a chart, which is shown until the object is opened."""
_LOOKS_INTO = re.compile(
    r"\b(?:(?:COUNT|SUM|AVERAGE|MAX|MIN)IFS?|[VHX]?LOOKUP|X?MATCH|SEARCHB?|FINDB?|LEFTB?|RIGHTB?|MIDB?|REPLACEB?"
    r"|SUBSTITUTE|EXACT|TEXT(?:BEFORE|AFTER|SPLIT)|REGEX\w*|FILTER|D(?:COUNTA?|SUM|GET|AVERAGE|MAX|MIN))\s*\(",
    re.IGNORECASE,
)
"""Functions that look into texts."""
_RULE = re.compile(r'<(?:\w+:)?cfRule\s[^<>]*\stext="([^"]*)"')
_LINE_BREAK = re.compile(r"_x000[aAdD]_")
"""How a line break is written in the name of a column; a cell has the character itself."""
_ENCRYPTION = "META-INF/encryption.xml"
_PAGES = {
    "application/xhtml+xml", "text/html", "text/x-oeb1-document", "application/x-dtbncx+xml"
}  # fmt: skip
"""Media types of pages and of tables of contents."""
_OF_BOOK = re.compile(r"<(?:\w+:)?(?:ncx|package)[\s>]")
Parse = Callable[[str, str], list[Piece]]


@dataclass(frozen=True)
class OfficeKind:
    """A kind of document: which members have text, and how they are read."""

    needs: str
    """Pattern of the whole name of a member that each such document has."""
    has_text: str
    """Pattern of the whole names of members with text."""
    parse: Parse


def _parse_page(text: str, name: str, source_lang: str, attributes: bool) -> list[Piece]:
    if name.lower().endswith((".ncx", ".opf")) or _OF_BOOK.search(text, 0, 2000):
        return parse_book(text, name)
    return parse_html(text, source_lang, attributes, is_xml=True)


def kind_of(format: str, source_lang: str, attributes: bool = True) -> OfficeKind:
    """The kind of a format: docx, pptx, xlsx, odt, odp or epub; for `attributes` see parse_html."""
    # What a master or a glossary has is seen where it is used.
    word = r"word/(?!glossary/|theme/|styles|numbering|settings|webSettings|fontTable)[^_].*\.xml"
    slides = r"ppt/(?:slides|notesSlides|diagrams|comments|charts|drawings)/[^_].*\.xml"
    of_cells = (
        "sharedStrings|(?:worksheets|chartsheets|drawings|diagrams|charts|comments|threadedComments)[/\\d].*"
    )
    cells = rf"(?i:xl/(?:{of_cells})\.xml)"
    pages = partial(_parse_page, source_lang=source_lang, attributes=attributes)
    return {
        "docx": OfficeKind(r"word/document\d*\.xml", word, parse_ooxml),
        "pptx": OfficeKind(r"ppt/presentation\.xml", slides, parse_ooxml),
        "xlsx": OfficeKind(r"xl/workbook\d*\.xml", cells, parse_ooxml),
        **dict.fromkeys(
            ("odt", "odp"), OfficeKind(r"content\.xml", r"(?:[^/]+/)?content\.xml|styles\.xml", parse_odf)
        ),
        "epub": OfficeKind(r"META-INF/container\.xml", r"(?i).*\.(?:xhtml|html?|ncx|opf)", pages),
    }[format]


@dataclass(frozen=True)
class OfficeDocument:
    """A document and its members."""

    members: Sequence[Member]
    kind: OfficeKind
    name: str
    format: str
    languages: tuple[str, str]
    """Source and target of the translation."""

    @classmethod
    def read(
        cls, raw: bytes, format: str, languages: tuple[str, str], name: str, attributes: bool = True
    ) -> "OfficeDocument":
        """InputError if it is no such document."""
        members, kind = read_members(raw, name), kind_of(format, languages[0], attributes)
        if not any(re.fullmatch(kind.needs, member.info.filename) for member in members):
            raise InputError(f"{name}: must be a .{format} document with {_shown(kind.needs)}, but has none")
        return cls(members, kind, name, format, languages)

    def pieces(self, most_bytes: int = MOST_BYTES) -> list[Piece]:
        """The pieces of all members, with _BETWEEN after each. InputError for over `most_bytes` of text."""
        pieces: list[Piece] = []
        # Before anything is unpacked
        check_size(sum(member.info.file_size for member in self._with_text), self.name, most_bytes, "XML")
        objects = set()
        for member in self._with_text:
            name = f"{self.name}/{member.info.filename}"
            parsed = self.kind.parse(decode_page(member.content, name)[0], name)
            if any(isinstance(piece, MarkedText) for piece in parsed):
                objects.add(PurePosixPath(member.info.filename).parent.name)
            pieces += [*parsed, _BETWEEN]
        named = self._named_texts()
        pieces = [
            Stays(piece.render(), _NAMED)
            if isinstance(piece, MarkedText) and named.has(piece.text)
            else piece
            for piece in pieces
        ]
        return [*pieces, *self._others(objects)]

    def _named_texts(self) -> "_NamedTexts":
        """The texts that other parts of a workbook compare with the texts of its cells: names of columns,
        strings in formulas, values of lists, filters and pivot tables. Translating them in the cells would
        change numbers or damage the document.
        """
        members = [member for member in self.members if _NAMES_TEXTS.fullmatch(member.info.filename)]
        whole: list[str] = []
        parts: list[str] = []
        for text in (decode_page(member.content, self.name)[0] for member in members):
            for match in _NAME.finditer(text):
                formula = html.unescape(match[2] or "")
                strings = re.findall(r'"((?:[^"]|"")*)"', formula)
                whole += [match[1] or "", *strings, *(part for one in strings for part in one.split(","))]
                # Strings of functions that look into texts, and values with * or ?, match parts of a cell.
                parts += strings if _LOOKS_INTO.search(formula) else []
                parts += [match[1]] if re.search(r"[*?]", match[1] or "") else []
            parts += _RULE.findall(text)
        return _NamedTexts.of(whole, parts)

    def _others(self, objects: AbstractSet[str]) -> Iterator[Piece]:
        """An empty piece for each part with text that is not read. `objects` are the embedded documents of
        OpenDocument in which there are texts.
        """
        for pattern, what in _OTHER_MARKUP.items():
            for member in self._with_text:
                yield from [Stays("", what)] * len(re.findall(pattern, member.content))
        for member in self.members:
            if _EMBEDDED.fullmatch(member.info.filename):
                yield Stays("", "embedded files")
            elif (of := _REPLACEMENT.fullmatch(member.info.filename)) and of[1] in objects:
                yield Stays("", "pictures of embedded objects")
            elif member.info.filename.lower().endswith(".svg") and _SVG_TEXT.search(member.content):
                yield Stays("", "pictures with texts (SVG)")
            elif _SHOWN_IN.fullmatch(member.info.filename):
                text = decode_page(member.content, self.name)[0]
                yield from (Stays("", what) for what in shown_words(text))

    @property
    def remarks(self) -> list[str]:
        """Sentences about what is left out of the translation."""
        is_signed = any(_SIGNATURES.fullmatch(member.info.filename) for member in self.members)
        return ["the digital signature is left out: it holds for the original alone"] * is_signed

    def written(self, translated: str) -> bytes:
        """The translated document, in the writing direction of the target language and without signatures."""
        changed = {}
        for member, text in zip(self._with_text, translated.split(_BETWEEN)):
            _, encoding = decode_page(member.content, member.info.filename)
            text = turned(text, self.format, *self.languages)
            changed[member.info.filename] = text.encode(encoding.name, "xmlcharrefreplace")
        members = [one for one in self.members if not _SIGNATURES.fullmatch(one.info.filename)]
        if len(members) < len(self.members):
            for member in members:
                if member.info.filename.endswith((".rels", "[Content_Types].xml", "META-INF/manifest.xml")):
                    text = member.content.decode()
                    changed[member.info.filename] = _OF_SIGNATURES.sub("", text).encode()
        return packed(members, changed)

    @cached_property
    def _with_text(self) -> list[Member]:
        listed = _pages_of_book(self.members, self.name)
        if protected := listed & _protected(self.members):
            raise InputError(
                f"{self.name}: must not be protected, but {min(protected)} is encrypted; use another copy"
            )
        return [
            member
            for member in self.members
            if re.fullmatch(self.kind.has_text, member.info.filename) or member.info.filename in listed
        ]


@dataclass(frozen=True)
class _NamedTexts:
    """The texts of a workbook that its cells are compared with, without capitals."""

    whole: frozenset[str]
    parts: frozenset[str]

    @classmethod
    def of(cls, whole: Sequence[str], parts: Sequence[str]) -> "_NamedTexts":
        def plain(values: Iterable[str]) -> frozenset[str]:
            texts = (_LINE_BREAK.sub(" ", html.unescape(value)).replace('""', '"') for value in values)
            return frozenset(" ".join(text.casefold().split()) for text in texts)

        pieces = plain(piece for one in parts for piece in re.split(r"[*?~]+", one))
        return cls(plain(whole), frozenset(piece for piece in pieces if sum(map(str.isalpha, piece)) > 1))

    def has(self, text: str) -> bool:
        """True if another text in the place of this one might change a number."""
        text = " ".join(text.casefold().split())
        return text in self.whole or any(part in text for part in self.parts)


def _pages_of_book(members: Sequence[Member], name: str) -> set[str]:
    """The members that the package of a book names as pages or contents, whatever their endings."""
    pages = set()
    for package in (member for member in members if member.info.filename.lower().endswith(".opf")):
        folder = PurePosixPath(package.info.filename).parent
        text = decode_page(package.content, name)[0]
        for token in xml_tokens(text, f"{name}/{package.info.filename}"):
            if token.name.rpartition(":")[2] == "item" and token.attribute("media-type") in _PAGES:
                pages.add(posixpath.normpath(folder / unquote(token.attribute("href") or "")))
    return pages


def _protected(members: Sequence[Member]) -> set[str]:
    """The members of a book that are encrypted; often these are fonts alone."""
    texts = (m.content.decode(errors="replace") for m in members if m.info.filename == _ENCRYPTION)
    return {
        unquote(uri)
        for text in texts
        for uri in re.findall(r'<(?:\w+:)?CipherReference\s+URI="([^"]*)"', text)
    }


def _shown(pattern: str) -> str:
    """The usual name that a pattern matches."""
    return pattern.replace(r"\d*", "").replace("\\", "")
