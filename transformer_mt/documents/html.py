"""HTML: what of it is text to translate, and what stays as it is."""

import copy
import html
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import lxml.html
from lxml import etree

from transformer_mt.documents.marked_text import Mark, MarkedText, Piece
from transformer_mt.errors import InputError

# Elements that stand within a sentence; all others end it.
_INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i",
    "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
})  # fmt: skip
_CODE = frozenset({
    "code", "kbd", "samp", "var",
})  # fmt: skip
# Within a sentence, but without text of it.
_OBJECTS = frozenset({
    "audio", "canvas", "embed", "iframe", "img", "input", "map", "math", "noembed", "object", "picture",
    "script", "style", "svg", "template", "video", "wbr",
})  # fmt: skip
_BLOCKS_THAT_STAY = frozenset({
    "listing", "noscript", "plaintext", "pre", "textarea", "xmp",
})  # fmt: skip
_IS_DOCUMENT = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_PAGE_TAGS = re.compile(r"</?(?:html|head|body)\b[^>]*>", re.IGNORECASE)
_DOCTYPE = re.compile(r".*?<!doctype[^>]*>\s*", re.IGNORECASE | re.DOTALL)
_DEPTH = 256  # libxml2 reads no deeper
_SPACES = re.compile(r"[ \t\n\r\f]+")
_NOTE = re.compile(r"[\W\d]*")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\ufdd0\ufdd1]")
_HOLE = re.compile("\ufdd0([0-9]+)\ufdd1")


def parse_html(text: str, name: str = "the HTML") -> list[Piece]:
    """A document or a fragment in pieces. Written one after the other, they are the document."""
    text = _NOT_IN_XML.sub("", text)
    if not text.strip():
        return [text]
    is_document = _IS_DOCUMENT.match(text) is not None
    parser = lxml.html.HTMLParser(encoding="utf-8", no_network=True)
    whole = text if is_document else f"<html><body>{_PAGE_TAGS.sub('', text)}</body></html>"
    try:
        root = lxml.html.document_fromstring(whole.encode(), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError) as error:
        raise InputError(f"{name}: must be HTML, but cannot be read: {error}") from None
    if any(error.level >= etree.ErrorLevels.FATAL for error in parser.error_log):  # text would be lost
        raise InputError(f"{name}: must be HTML with elements at most {_DEPTH} deep, but has deeper ones")
    texts: list[MarkedText] = []
    _take_texts(root, texts)
    if is_document:
        doctype = _DOCTYPE.match(text)
        written = (doctype.group() if doctype else "") + _written(root) + "\n"
    else:
        body = root.find("body")
        parts = [] if body is None else [html.escape(body.text or "", quote=False), *map(_with_tail, body)]
        written = "".join(parts)
    pieces: list[Piece] = []
    for i, part in enumerate(_HOLE.split(written)):
        pieces.append(texts[int(part)] if i % 2 else part)
    return pieces


def _take_texts(element: etree._Element, texts: list[MarkedText]) -> None:
    """Replace the texts within `element` by holes, and add them to `texts`."""
    if element.tag in _BLOCKS_THAT_STAY or _is_not_translated(element):
        return
    run = _Run()
    kept: list[tuple[etree._Element | None, str]] = [(None, "")]
    for child, following in [(None, element.text or ""), *((child, child.tail or "") for child in element)]:
        if child is not None and not _is_inline(child):
            kept += run.end(texts)
            run = _Run()
            _take_texts(child, texts)
            kept.append((child, ""))
        elif child is not None:
            run.add(child)
        run.add_text(following)
    kept += run.end(texts)
    _set_content(element, kept)


class _Run:
    """Text and inline markup between two elements that end a sentence."""

    def __init__(self) -> None:
        self.text, self.marks = "", list[Mark]()
        self.nodes: list[tuple[etree._Element | None, str]] = []
        """As they stand in the document: an element, or a text."""

    def add(self, element: etree._Element) -> None:
        self.nodes.append((element, ""))
        self._add_mark(element, self.marks)

    def add_text(self, text: str) -> None:
        self.nodes.append((None, text))
        self._append(text, self.marks)

    def end(self, texts: list[MarkedText]) -> list[tuple[etree._Element | None, str]]:
        """What stands in the document now: a hole, or the nodes themselves where there is nothing to
        translate.
        """
        marks = tuple(self.marks)
        words = MarkedText(self.text, marks).translatable()
        if not any(map(str.isalpha, words)):
            return self.nodes
        text = self.text.strip(" ")
        start = len(self.text) - len(self.text.lstrip(" "))
        trimmed = tuple(_trimmed(mark, self.text, start, len(text)) for mark in marks)
        before = _leading_spaces(self.nodes) or " " * (start > 0)
        after = _leading_spaces([(node, text[::-1]) for node, text in reversed(self.nodes)])[::-1]
        after = after or " " * (len(self.text) > start + len(text))
        texts.append(MarkedText(text, trimmed, before, after, _escape))
        return [(None, f"\ufdd0{len(texts) - 1}\ufdd1")]

    def _append(self, text: str, marks: list[Mark]) -> None:
        """White space of any length is one space, as a browser shows it."""
        text = _SPACES.sub(" ", text)
        if text.startswith(" ") and (self.text.endswith(" ") or not self.text):
            if marks and marks[-1].is_point:  # an image with a space on both sides keeps both
                marks[-1] = replace(marks[-1], opening=marks[-1].opening + " ")
                text = text[1:]
            elif self.text:
                text = text[1:]
        self.text += text

    def _add_mark(self, element: etree._Element, marks: list[Mark]) -> None:
        begin = len(self.text)
        content = "" if _is_object(element) else _SPACES.sub(" ", "".join(element.itertext())).strip()
        if not content or (element.tag == "sup" and _NOTE.fullmatch(content)):
            marks.append(Mark(begin, begin, _written(element)))
            return
        if element.tag in _CODE or _is_not_translated(element):
            self.text += content
            marks.append(Mark(begin, len(self.text), "", verbatim=_written(element)))
            return
        children: list[Mark] = []
        self._append(element.text or "", children)
        for child in element:
            self._add_mark(child, children)
            self._append(child.tail or "", children)
        marks.append(Mark(begin, len(self.text), *_tags(element), children=tuple(children)))


def _leading_spaces(nodes: Sequence[tuple[etree._Element | None, str]]) -> str:
    text = "".join(text for _, text in takewhile(lambda node: node[0] is None, nodes))
    return text[: len(text) - len(text.lstrip(" \t\n\r\f"))]


def _trimmed(mark: Mark, text: str, start: int, length: int) -> Mark:
    """The mark without spaces at its ends, in a text that begins at `start`."""
    inside = text[mark.begin : mark.end]
    begin = mark.begin + len(inside) - len(inside.lstrip(" "))
    end = max(begin, mark.end - len(inside) + len(inside.rstrip(" ")))
    begin, end = (min(max(position - start, 0), length) for position in (begin, end))
    children = tuple(_trimmed(child, text, start, length) for child in mark.children)
    return Mark(begin, end, mark.opening, mark.closing, children, mark.verbatim)


def _set_content(element: etree._Element, content: Sequence[tuple[etree._Element | None, str]]) -> None:
    for child in list(element):
        element.remove(child)
    element.text, last = "", None
    for child, text in content:
        if child is not None:
            child.tail, last = "", child
            element.append(child)
        elif last is None:
            element.text += _NOT_IN_XML.sub("", text) if text[:1] != "\ufdd0" else text
        else:
            last.tail += _NOT_IN_XML.sub("", text) if text[:1] != "\ufdd0" else text


def _is_object(element: etree._Element) -> bool:
    """An image, a comment, a script."""
    return not isinstance(element.tag, str) or element.tag in _OBJECTS


def _is_inline(element: etree._Element) -> bool:
    if _is_object(element) or element.tag in _CODE:
        return True
    return element.tag in _INLINE and all(map(_is_inline, element))


def _is_not_translated(element: etree._Element) -> bool:
    classes = (element.get("class") or "").split()
    return (element.get("translate") or "").strip().lower() == "no" or "notranslate" in classes


def _tags(element: etree._Element) -> tuple[str, str]:
    shell = copy.deepcopy(element)
    del shell[:]
    shell.text = "\ufdd0"
    opening, _, closing = _written(shell).partition("\ufdd0")
    return opening, closing


def _written(element: etree._Element) -> str:
    text: str = etree.tostring(element, encoding="unicode", method="html", with_tail=False)
    return text


def _with_tail(element: etree._Element) -> str:
    return _written(element) + html.escape(element.tail or "", quote=False)


def _escape(text: str) -> str:
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")
