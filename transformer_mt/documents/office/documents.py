"""Documents that are zip files: their texts as one virtual text, and back."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from transformer_mt.documents.formats import MOST_BYTES, check_size
from transformer_mt.documents.markup.html import parse_html
from transformer_mt.documents.markup.html_encoding import decode_page
from transformer_mt.documents.markup.marked_text import MarkedText, Piece
from transformer_mt.documents.markup.spelling import XmlSpelling
from transformer_mt.documents.markup.xml_tokens import xml_tokens
from transformer_mt.documents.office.odf import parse_odf
from transformer_mt.documents.office.ooxml import parse_ooxml
from transformer_mt.documents.office.package import Member, packed, read_members
from transformer_mt.errors import InputError

_BETWEEN = "\0"
"""Between the members: no XML has it."""

_LINE_BREAK = re.compile(r"_x000[aAdD]_")
"""A line break in the name of a column; in a cell it is one."""
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
    return parse_html(text, source_lang, attributes, is_xml=True)


def kind_of(format: str, source_lang: str, attributes: bool = True) -> OfficeKind:
    """The kind of a format: docx, pptx, xlsx, odt or epub; for `attributes` see parse_html."""
    word = r"word/(?:document\d*|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"
    of_slides = r"(?:slides/slide|notesSlides/notesSlide|diagrams/(?:data|drawing))\d+|comments/modern\w+"
    slides = rf"ppt/(?:{of_slides})\.xml"
    cells = r"xl/(?:sharedStrings|worksheets/sheet\d+)\.xml"
    pages = partial(_parse_page, source_lang=source_lang, attributes=attributes)
    return {
        "docx": OfficeKind(r"word/document\d*\.xml", word, parse_ooxml),
        "pptx": OfficeKind(r"ppt/presentation\.xml", slides, parse_ooxml),
        "xlsx": OfficeKind(r"xl/workbook\d*\.xml", cells, parse_ooxml),
        "odt": OfficeKind(r"content\.xml", r"content\.xml|styles\.xml", parse_odf),
        "epub": OfficeKind(r"META-INF/container\.xml", r".*\.(?:xhtml|html?)", pages),
    }[format]


@dataclass(frozen=True)
class OfficeDocument:
    """A document and its members."""

    members: Sequence[Member]
    kind: OfficeKind
    name: str

    @classmethod
    def read(
        cls, raw: bytes, format: str, source_lang: str, name: str, attributes: bool = True
    ) -> "OfficeDocument":
        """InputError if it is no such document."""
        members, kind = read_members(raw, name), kind_of(format, source_lang, attributes)
        if not any(re.fullmatch(kind.needs, member.info.filename) for member in members):
            raise InputError(f"{name}: must be a .{format} document with {_shown(kind.needs)}, but has none")
        return cls(members, kind, name)

    def pieces(self, most_bytes: int = MOST_BYTES) -> list[Piece]:
        """All texts of the document, its members apart. InputError for more than `most_bytes` of text."""
        pieces: list[Piece] = []
        check_size(sum(len(member.content) for member in self._with_text()), self.name, most_bytes, "XML")
        for member in self._with_text():
            name = f"{self.name}/{member.info.filename}"
            pieces += [*self.kind.parse(decode_page(member.content, name)[0], name), _BETWEEN]
        stay = self._column_names()
        return [p.render() if isinstance(p, MarkedText) and p.text in stay else p for p in pieces]

    def _column_names(self) -> set[str]:
        """The names of the columns of a workbook's tables: a cell must have the same text, or the document
        counts as damaged.
        """
        tables = [m for m in self.members if re.fullmatch(r"xl/tables/table\d+\.xml", m.info.filename)]
        tokens = (t for m in tables for t in xml_tokens(decode_page(m.content, self.name)[0], self.name))
        columns = (t for t in tokens if t.name.rpartition(":")[2].lower() == "tablecolumn")
        names = (XmlSpelling().decoded(column.attribute("name") or "") for column in columns)
        return {" ".join(_LINE_BREAK.sub(" ", name).split()) for name in names}

    def written(self, translated: str) -> bytes:
        """The document with what its pieces became."""
        changed = {}
        for member, text in zip(self._with_text(), translated.split(_BETWEEN)):
            _, encoding = decode_page(member.content, member.info.filename)
            changed[member.info.filename] = text.encode(encoding.name, "xmlcharrefreplace")
        return packed(self.members, changed)

    def _with_text(self) -> list[Member]:
        return [member for member in self.members if re.fullmatch(self.kind.has_text, member.info.filename)]


def _shown(pattern: str) -> str:
    """The usual name that a pattern matches."""
    return pattern.replace(r"\d*", "").replace("\\", "")
