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
from transformer_mt.text.unsegmented import LETTER

# Elements that stand within a sentence; all others end it.
_INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "i",
    "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u",
})  # fmt: skip
_CODE = frozenset({"code", "kbd", "samp", "var"})
# Within a sentence, but without text of it.
_OBJECTS = frozenset({
    "audio", "canvas", "embed", "iframe", "img", "input", "map", "math", "noembed", "object", "picture",
    "script", "style", "svg", "template", "video", "wbr",
})  # fmt: skip
_BLOCKS_THAT_STAY = frozenset({"listing", "noscript", "plaintext", "pre", "textarea", "xmp"})
_WITHOUT_CONTENT = ("embed", "source", "track", "wbr")  # libxml2 takes what follows for their content
_END_TAGS = re.compile(rf"(<({'|'.join(_WITHOUT_CONTENT)})\b[^<>]*>)</\2>")
# Recent versions of libxml2 read the content of these as text without markup, but escape it in writing.
_RAW_TEXT = tuple(
    tag for tag in ("iframe", "noembed", "noframes", "xmp")
    if lxml.html.fragment_fromstring(f"<div><{tag}>&amp;</{tag}></div>")[0].text == "&amp;"
)  # fmt: skip
_DOCUMENT = re.compile(r"<(?:html|head|body)\b", re.IGNORECASE)
_DEPTH = 256  # libxml2 reads no deeper
_SPACES = re.compile(r"[ \t\n\r\f]+")
_NOTE = re.compile(r"[\W\d]*")
# U+FDD0 and U+FDD1 stand in no text: they enclose the number of a text that was taken out.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\ufdd0\ufdd1]")
_PLACEHOLDER = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")
_LITERAL = re.compile(f"{_OPEN}literal([0-9]+){_CLOSE}")


def parse_html(text: str, name: str = "the HTML") -> list[Piece]:
    """A document or a fragment in pieces. Written one after the other, they are the document
    as the parser understood it.
    """
    text = text.replace("\f", " ").replace("\v", " ")  # spaces that XML does not have
    text = _NOT_IN_XML.sub("", text.removeprefix("\ufeff"))
    if not text.strip():
        return [text]
    start, is_document = _prolog(text)
    parser = lxml.html.HTMLParser(encoding="utf-8", no_network=True)
    whole = text[start:] if is_document else f"<html><body>{text}"
    try:
        root = lxml.html.document_fromstring(whole.encode(), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError) as error:
        raise InputError(f"{name}: must be HTML, but cannot be read: {error}") from None
    if any(error.level >= etree.ErrorLevels.FATAL for error in parser.error_log):  # text would be lost
        raise InputError(f"{name}: must be HTML with elements at most {_DEPTH} deep, but has deeper ones")
    roots = [root, *root.itersiblings()]  # what follows </html>, too
    texts: list[MarkedText] = []
    for top in roots:
        _clean(top)
        _take_texts(top, texts)
    if is_document:
        written = text[:start] + "".join(map(_written, roots)) + "\n"
    else:
        written = "".join(map(_inner, roots))
    pieces: list[Piece] = []
    for i, part in enumerate(_PLACEHOLDER.split(written)):
        pieces.append(texts[int(part)] if i % 2 else part)
    return pieces


def _prolog(text: str) -> tuple[int, bool]:
    """Where the first element begins, after declarations and comments, and whether the text is a whole
    document.
    """
    position, has_doctype = 0, False
    while True:
        position += len(text[position:]) - len(text[position:].lstrip())
        for begins, ends in (("<!--", "-->"), ("<?", ">"), ("<!doctype", ">")):
            if text[position : position + len(begins)].lower() == begins:
                end = text.find(ends, position)
                if end < 0:
                    return position, has_doctype
                has_doctype |= begins == "<!doctype"
                position = end + len(ends)
                break
        else:
            return position, has_doctype or _DOCUMENT.match(text, position) is not None


def _clean(root: etree._Element) -> None:
    """Remove characters that character references made, and give elements without content none."""
    for element in list(root.iter()):
        element.text, element.tail = (
            _NOT_IN_XML.sub("", part or "") for part in (element.text, element.tail)
        )
        for key, value in element.attrib.items():
            if _NOT_IN_XML.search(value):
                element.set(key, _NOT_IN_XML.sub("", value))
    for element in reversed(list(root.iter(*_WITHOUT_CONTENT))):
        parent = element.getparent()
        if parent is None or not (element.text or len(element)):
            continue
        content, last = list(element), element
        element.tail, tail = element.text, element.tail or ""
        element.text = ""
        for child in content:
            last.addnext(child)  # with the text after it
            last = child
        last.tail = (last.tail or "") + tail


def _take_texts(element: etree._Element, texts: list[MarkedText]) -> None:
    """Replace the texts within `element` by placeholders, and add them to `texts`."""
    if _is_object(element) or element.tag in _BLOCKS_THAT_STAY or _is_not_translated(element):
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
        self._after_literal = ""
        """The last character of a literal text that was added last."""
        self.nodes: list[tuple[etree._Element | None, str]] = []
        """The parts as they stand in the document: an element, or a text."""

    def add(self, element: etree._Element) -> None:
        self.nodes.append((element, ""))
        self._add_mark(element, self.marks)

    def add_text(self, text: str) -> None:
        self.nodes.append((None, text))
        self._append(text, self.marks)

    def end(self, texts: list[MarkedText]) -> list[tuple[etree._Element | None, str]]:
        """What stands in the document now: a placeholder, or the nodes themselves where there is nothing
        to translate.
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
        return [(None, f"{_OPEN}{len(texts) - 1}{_CLOSE}")]

    def _append(self, text: str, marks: list[Mark]) -> None:
        """White space of any length is one space, as a browser shows it."""
        text = _SPACES.sub(" ", text)
        if text and LETTER.fullmatch(self._after_literal) and LETTER.fullmatch(text[0]):
            text = f" {text}"
        self._after_literal = "" if text else self._after_literal
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
            self._add_literal(element, content, marks)
            return
        children: list[Mark] = []
        self._append(element.text or "", children)
        for child in element:
            self._add_mark(child, children)
            self._append(child.tail or "", children)
        marks.append(Mark(begin, len(self.text), *_tags(element), children=tuple(children)))

    def _add_literal(self, element: etree._Element, content: str, marks: list[Mark]) -> None:
        """Text that stays, apart from the words around it: it must be found again in the translation."""
        around = "".join(element.itertext())
        self._append(" " if around[:1].isspace() else "", marks)
        if LETTER.fullmatch(self.text[-1:]) and LETTER.fullmatch(content[0]):
            self.text += " "
        begin = len(self.text)
        self.text += content
        marks.append(Mark(begin, len(self.text), "", verbatim=_written(element)))
        self._after_literal = content[-1]
        self._append(" " if around[-1:].isspace() else "", marks)


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
            element.text += text
        else:
            last.tail += text


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
    shell.text = _OPEN
    opening, _, closing = _written(shell).partition(_OPEN)
    return opening, closing


def _written(element: etree._Element) -> str:
    # What is written as it is: no tag within it is one.
    literal = [node for node in element.iter(*_RAW_TEXT, "script", "style", etree.Comment) if node.text]
    contents = [node.text or "" for node in literal]
    for i, node in enumerate(literal):
        node.text = f"{_OPEN}literal{i}{_CLOSE}"
    text = etree.tostring(element, encoding="unicode", method="html", with_tail=False)
    for node, content in zip(literal, contents):
        node.text = content
    text = _END_TAGS.sub(r"\1", text)
    return _LITERAL.sub(lambda match: contents[int(match[1])], text)


def _inner(root: etree._Element) -> str:
    """What was within the body of a fragment, and after it."""
    body = root.find("body") if root.tag == "html" else None
    if body is None:
        return _written(root)
    parts = [html.escape(body.text or "", quote=False)]
    parts += [_written(child) + html.escape(child.tail or "", quote=False) for child in body]
    return "".join([*parts, html.escape(body.tail or "", quote=False)])


def _escape(text: str) -> str:
    return html.escape(text, quote=False).replace("\u00a0", "&nbsp;")
