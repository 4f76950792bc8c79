"""Zip files of documents: check and read their members, and write them again with new contents.

If one language of the translation is written from the left and the other from the right, the paragraphs,
tables and pages of the document are turned.
"""

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

from transformer_mt.errors import InputError
from transformer_mt.text.languages import is_right_to_left

_P_AFTER_BIDI = (
    "adjustRightInd|snapToGrid|spacing|ind|contextualSpacing|mirrorIndents|suppressOverlap|jc|textDirection|"
    "textAlignment|textboxTightWrap|outlineLvl|divId|cnfStyle|rPr|sectPr|pPrChange"
)
_R_AFTER_RTL = "cs|em|lang|eastAsianLayout|specVanish|oMath|rPrChange"
"""Elements that the schema puts after w:bidi in the properties of a paragraph, and after w:rtl in a run's."""


def turned(xml: str, format: str, source: str, target: str) -> str:
    """A part of a document, or a page, in the direction of the target language."""
    to_right, from_right = is_right_to_left(target), is_right_to_left(source)
    if to_right == from_right:
        return xml
    turn: Callable[[str, bool], str] = {
        "docx": _word, "pptx": _slides, "xlsx": _sheet, "odt": _odf, "odp": _odf, "epub": _page,
        "html": _page,
    }[format]  # fmt: skip
    return turn(xml, to_right)


def _word(xml: str, to_right: bool) -> str:
    xml = re.sub(r"<w:(?:bidi|rtl|bidiVisual)(?:\s[^<>]*)?/>", "", xml)
    if not to_right:
        return xml
    # Give properties to paragraphs and runs without them; write empty ones with an end tag, so that they can
    # be filled.
    xml = re.sub(r"(<w:p(?:\s[^<>]*)?(?<!/)>)(?!\s*<w:pPr[\s/>])", r"\1<w:pPr></w:pPr>", xml)
    xml = re.sub(r"(<w:r(?:\s[^<>]*)?(?<!/)>)(?!\s*<w:rPr[\s/>])", r"\1<w:rPr></w:rPr>", xml)
    xml = re.sub(r"<w:(pPr|rPr|tblPr|sectPr)((?:\s[^<>]*)?)/>", r"<w:\1\2></w:\1>", xml)
    xml = _with_child(xml, "pPr", "<w:bidi/>", _P_AFTER_BIDI)
    xml = _with_child(xml, "rPr", "<w:rtl/>", _R_AFTER_RTL)
    xml = re.sub(
        r"(<w:tblPr(?:\s[^<>]*)?(?<!/)>(?:\s*<w:(?:tblStyle|tblpPr|tblOverlap)(?:\s[^<>]*)?/>)*)",
        r"\1<w:bidiVisual/>",
        xml,
    )
    last = r"<w:(?:rtlGutter|docGrid|printerSettings)[\s/>]|</w:sectPr>"
    section = rf"(<w:sectPr(?:\s[^<>]*)?(?<!/)>.*?)({last})"
    return re.sub(section, r"\1<w:bidi/>\2", xml, flags=re.DOTALL)


def _with_child(xml: str, name: str, child: str, after: str) -> str:
    """Add `child` to each element `name`, before the children that must follow it (the pattern `after`)."""
    pattern = re.compile(
        rf"(<w:{name}(?:\s[^<>]*)?(?<!/)>)((?:(?!</?w:{name}[\s>]).)*?)(<w:(?:{after})[\s/>]|</w:{name}>)",
        re.DOTALL,
    )
    return pattern.sub(rf"\1\2{child}\3", xml)


def _slides(xml: str, to_right: bool) -> str:
    def properties(match: re.Match[str]) -> str:
        attributes = re.sub(r'\srtl="\w+"', "", match[2])
        if match[1] == "a:pPr":
            start, end = ("l", "r") if to_right else ("r", "l")
            attributes = re.sub(rf'(\salgn=)"{start}"', rf'\1"{end}"', attributes)
        return f'<{match[1]}{attributes} rtl="{int(to_right)}"'

    xml = re.sub(r"(<a:p(?:\s[^<>]*)?(?<!/)>)(?!\s*<a:pPr[\s/>])", r"\1<a:pPr/>", xml)
    return re.sub(r"<(a:pPr|a:tblPr|a:lvl\dpPr)((?:\s[\w:]+=\"[^\"]*\")*)", properties, xml)


def _sheet(xml: str, to_right: bool) -> str:
    xml = re.sub(r'(<(?:\w+:)?sheetView\b[^<>]*?)\srightToLeft="\w+"', r"\1", xml)
    if not to_right:
        return xml
    if re.search(r"<(?:\w+:)?sheetView[\s/>]", xml):
        return re.sub(r"(<(?:\w+:)?sheetView)(?=[\s/>])", r'\1 rightToLeft="1"', xml)
    views = '<sheetViews><sheetView rightToLeft="1" workbookViewId="0"/></sheetViews>'
    before = r"<(?:sheetPr|dimension)(?:\s[^<>]*)?(?:/>|>.*?</(?:sheetPr|dimension)>)"
    first = rf"(<worksheet(?:\s[^<>]*)?>(?:\s*{before})*)"
    return re.sub(first, rf"\1{views}", xml, count=1, flags=re.DOTALL)


def _odf(xml: str, to_right: bool) -> str:
    mode = f'style:writing-mode="{"rl-tb" if to_right else "lr-tb"}"'
    xml = re.sub(r'\sstyle:writing-mode="[\w-]+"', "", xml)
    properties = r"<style:(?:paragraph|page-layout|table|section|graphic)-properties"
    xml = re.sub(rf"({properties})(?=[\s/>])", rf"\1 {mode}", xml)
    start, end = ("left", "right") if to_right else ("right", "left")
    return re.sub(rf'\sfo:text-align="{start}"', f' fo:text-align="{end}"', xml)


def _page(xml: str, to_right: bool) -> str:
    direction = "rtl" if to_right else "ltr"
    tag = re.compile(r"<html((?:\s[^<>]*?)?)(/?>)", re.IGNORECASE)
    xml = tag.sub(lambda match: f'<html{_without(match[1], "dir")} dir="{direction}"{match[2]}', xml, count=1)
    spine = re.compile(r"<((?:\w+:)?spine)((?:\s[^<>]*?)?)(/?>)")
    return spine.sub(
        lambda match: (
            f"<{match[1]}{_without(match[2], 'page-progression-direction')} "
            f'page-progression-direction="{direction}"{match[3]}'
        ),
        xml,
        count=1,
    )


def _without(attributes: str, name: str) -> str:
    return re.sub(rf"\s{name}\s*=\s*(?:\"[^\"]*\"|'[^']*'|[^\s\"'>]+)", "", attributes, flags=re.IGNORECASE)


_MOST_BYTES = 500_000_000
_MOST_MEMBER = 400_000_000
_MOST_RATIO = 1000
"""The most bytes that all members together, and one member, may unpack to. A member that unpacks to over
_SMALL bytes must not exceed _MOST_RATIO times its packed size.
"""
_SMALL = 10_000_000
_BLOCK = 2**20
_OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""The first bytes of files of old office programs, and of files that are protected by a password."""


@dataclass(frozen=True)
class Member:
    """A file in a zip file, unpacked where it is needed."""

    info: zipfile.ZipInfo
    archive: zipfile.ZipFile
    name: str
    """The name of the document, for error messages."""

    @cached_property
    def content(self) -> bytes:
        """The content, kept in memory once it is read."""
        return self.read()

    def read(self) -> bytes:
        """The content, not kept."""
        with _damage_named(self.name), self.archive.open(self.info) as member:
            return member.read()


def read_members(raw: bytes, name: str) -> list[Member]:
    """All members of a zip file. InputError if the file is not a zip file, is protected by a password, has
    macros, or would unpack to more than the limits allow.
    """
    if raw.startswith(_OLD):
        raise InputError(
            f"{name}: is in a format from before 2007, or protected by a password; save it in a newer one "
            "without a password"
        )
    with _damage_named(name):
        archive = zipfile.ZipFile(BytesIO(raw))
        infos = archive.infolist()
        _check(infos, name)
        for info in infos:
            _check_content(archive, info, name)
    return [Member(info, archive, name) for info in infos]


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """InputError for a file that is damaged."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise InputError(f"{name}: must be a whole zip file, as such documents are: {error}") from None


def _check(infos: Sequence[zipfile.ZipInfo], name: str) -> None:
    if any(info.flag_bits & 1 for info in infos):
        raise InputError(f"{name}: must not be protected by a password, but is; save it without one")
    if macro := next((i.filename for i in infos if Path(i.filename).name.lower() == "vbaproject.bin"), None):
        raise InputError(f"{name}: must not have macros, but has {macro}; save it without them")
    if len({info.filename for info in infos}) < len(infos):
        raise InputError(f"{name}: must have each member once, but has one twice")
    if sum(info.file_size for info in infos) > _MOST_BYTES:
        raise InputError(f"{name}: must unpack to at most {_MOST_BYTES:,} bytes, but is larger")


def _check_content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> None:
    """InputError if a member is damaged, or larger than allowed; the size that the zip file declares is not
    trusted. The member is read block by block, to use little memory.
    """
    most = min(_MOST_MEMBER, max(_SMALL, _MOST_RATIO * info.compress_size))
    with archive.open(info) as member:
        count = 0
        while block := member.read(_BLOCK):
            count += len(block)
            if count > most:
                raise InputError(f"{name}: must unpack to less, but {info.filename} has over {most:,} bytes")


def packed(members: Sequence[Member], changed: Mapping[str, bytes]) -> bytes:
    """A zip file of the members in the same order; `changed` has the new contents of some, by name."""
    written = BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for member in members:
            info = zipfile.ZipInfo(member.info.filename, member.info.date_time)
            for field in ("compress_type", "comment", "create_system", "external_attr", "extra"):
                setattr(info, field, getattr(member.info, field))
            content = changed.get(info.filename)
            archive.writestr(info, member.read() if content is None else content)
    return written.getvalue()


# kind -> what is shown to readers: values of attributes (`attribute` or `element@attribute`), and the text of
# elements (`<element>`).
_SHOWN: dict[str, tuple[str, ...]] = {
    "tooltips": ("tooltip", "screenTip", "office:title", "xlink:title"),
    "choices of drop-down lists": (
        "listItem@displayText", "listItem@value", "listEntry@val", "<ListItem>", "text:label@text:value",
    ),
    "prompts and messages of cells": (
        "prompt", "promptTitle", "error", "errorTitle",
        "table:help-message@table:title", "table:error-message@table:title",
    ),
    "labels of forms": (
        "helpText@val", "statusText@val", "alias@val", "form:label", "form:title", "form:value",
        "form:current-value", "text:help", "text:hint", "suggestedsigner", "signinginstructions",
    ),
    "labels of numbered lists": (
        "lvlText@val", "style:num-prefix", "style:num-suffix", "text:num-prefix", "text:num-suffix",
    ),
    "names of sheets": ("sheet@name",),
    "captions of pivot tables and slicers": (
        "slicer@caption", "timeline@caption", "cacheHierarchy@caption", "cacheField@caption",
        "pageField@cap", "pivotField@name", "dataField@name", "rowHeaderCaption", "colHeaderCaption",
        "grandTotalCaption",
        "dataCaption", "missingCaption", "errorCaption", "subtotalCaption", "totalsRowLabel",
    ),
    "texts as pictures (WordArt)": ("textpath@string",),
    "alternative texts of old pictures": ("altText", "alt"),
    "names of sections": ("section@name", "custShow@name", "presentation:show@presentation:name"),
    "properties of the document": (
        "<dc:subject>", "<dc:description>", "<cp:keywords>", "<cp:category>", "<meta:keyword>", "<dc:title>",
    ),
    "texts of number formats": ("<number:text>", "<number:embedded-text>"),
    "notices of footnotes": (
        "<text:note-continuation-notice-forward>", "<text:note-continuation-notice-backward>",
    ),
    "entries of indexes": (
        "text:alphabetical-index-mark@text:string-value", "text:alphabetical-index-mark@text:key1",
        "text:toc-mark@text:string-value", "text:user-index-mark@text:string-value",
    ),
    "templates of indexes": ("<text:index-title-template>", "<text:index-entry-span>"),
}  # fmt: skip
_WITHIN_VALUES = {
    "choices of drop-down lists": r'<(?:\w+:)?formula1(?:\s[^<>]*)?>\s*(?:"|&quot;)([^<]+)',
    "texts of number formats": (
        r'\sformatCode="(?:[^"&]|&(?!quot;)|&quot;(?:[^"&]|&(?!quot;))*&quot;)*?'
        r"&quot;((?:[^\"&]|&(?!quot;))*?[^\W\d_]{2})"
    ),
    "labels of forms": r">\s*MACROBUTTON\s+\w+\s+([^<]+)",
    "entries of indexes": r'>\s*(?:XE|TC)\s+(?:"|&quot;)(?:<[^<>]*>|\s)*([^<]+)',
}
"""Words within longer values: choices of a cell where no other cells have them, and the codes of fields."""
_WORD = re.compile(r"[^\W\d_]{2}")


def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern whose groups are the values."""
    parts = []
    for name in names:
        element, at, attribute = name.rpartition("@")
        if name.startswith("<"):
            local = name[1:-1]
            tag = local if ":" in local else rf"(?:\w+:)?{local}"
            parts.append(rf"<{tag}(?:\s[^<>]*)?>([^<]+)<")
        elif at:
            parts.append(rf"<(?:[\w-]+:)?{element}\s(?:[^<>]*\s)?(?:\w+:)?{attribute}=[\"']([^\"'<>]*)")
        else:
            prefix = "" if ":" in attribute else r"(?:\w+:)?"
            parts.append(rf"\s{prefix}{attribute}=[\"']([^\"'<>]*)")
    return re.compile("|".join(parts))


_PATTERNS = [
    *((kind, _pattern(names)) for kind, names in _SHOWN.items()),
    *((kind, re.compile(pattern)) for kind, pattern in _WITHIN_VALUES.items()),
]


def shown_words(xml: str) -> Iterator[str]:
    """The kind of each value with words that is shown outside the texts of paragraphs and cells."""
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(xml):
            if _WORD.search(next(filter(None, match.groups()), "")):
                yield kind


def class_of(element: str, attribute: str | None) -> str | None:
    """The kind that an attribute is counted as, or the text of the element if `attribute` is None. Returns
    None for what is not counted.
    """
    names = {f"<{element}>"} if attribute is None else {attribute, f"{element}@{attribute}"}
    return next((kind for kind, shown in _SHOWN.items() if names & set(shown)), None)
