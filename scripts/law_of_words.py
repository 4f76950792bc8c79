"""The law of words over files of others: each word that a reader sees is in a text that is translated, in a
part that stays and is counted, or in one that stays by the documentation.

    pip install lxml polib
    python scripts/law_of_words.py FOLDER ... [--worst 3]

The words are what other readers find: markdown-it-py's tree of Markdown (CommonMark with tables), lxml's of
HTML, XLIFF and the parts of office documents, polib's entries. Without those that stay by the documentation:
code, addresses, front matter, marks of boxes and templates; codes of fields, properties of a document,
masters of slides; finished translations. A counted text within a sentence, such as a field, is missing here.
"""

import argparse
import io
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import lxml.html
import polib  # type: ignore[import-untyped]
from lxml import etree
from markdown_it import MarkdownIt

from transformer_mt.companions.documents.formats import DOCUMENT_FORMATS
from transformer_mt.companions.documents.markup.marked_text import MarkedText, Stays
from transformer_mt.companions.documents.read import Document, read_document
from transformer_mt.errors import InputError
from transformer_mt.messages import table

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_WIDE}]|(?:(?![{_WIDE}])[^\W\d_]){{2,}}")
_MARKS = re.compile(
    r"(?<![\w:]):[a-z0-9][\w+-]*:(?![\w:])|\{\{.*?\}\}|\{%.*?%\}|\{[#.:][^{}\n]*\}|\[\^[^\]]*\]|\[![A-Z]+\]"
    r"|(?m:^)[ \t]*(?::{3,}[^\s\[]*(?:[ \t]*[\w-]+)?|!!!\+?[ ]+[\w-]+|\?\?\?\+?[ ]+[\w-]+|===[+!]?)",
    re.DOTALL,
)
_ADDRESS = re.compile(r"https?://\S+|\S+/\S+/\S*|\S+@\S+")
_FRONT = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)
_XML = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
_SEEN = re.compile(
    r"(?:word/(?!glossary|theme|styles|settings|fontTable)|ppt/(?:slides|notesSlides|diagrams|charts|comments)/"
    r"|xl/|(?:[^/]+/)?content\.xml|styles\.xml).*"
)
"""Members of office documents with text that a reader sees."""
_CODES = {
    "instrText",
    "delText",
    "attrName",
    "f",
    "formatCode",
    "tableStyleId",
    "align",
    "annotation",
    "creator",
}
_CODES |= {"index-title-template", "date", "posOffset", "pos", "initials"}
_PARTS = {"p", "si", "tab", "br", "txbxContent"}
_HTML_CODES = {
    "script",
    "style",
    "code",
    "kbd",
    "samp",
    "var",
    "pre",
    "textarea",
    "noscript",
    "template",
    "noframes",
}


def _markdown(raw: bytes) -> Iterator[str]:
    text = raw.decode(errors="replace").replace("\r\n", "\n")
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    for block in parser.parse(_MARKS.sub(" ", _FRONT.sub("", text))):
        for inline in block.children or []:
            if inline.type in ("text", "text_special", "image"):
                yield inline.content


def _html(raw: bytes) -> Iterator[str]:
    for element, text in _texts(lxml.html.document_fromstring(raw)):
        around = [element, *element.iterancestors()]
        is_kept = any(one.get("translate") == "no" or "notranslate" in one.get("class", "") for one in around)
        if not is_kept and not any(one.tag in _HTML_CODES for one in around):
            yield text


def _office(raw: bytes) -> Iterator[str]:
    archive = zipfile.ZipFile(io.BytesIO(raw))
    for name in filter(_SEEN.fullmatch, archive.namelist()):
        if not name.endswith(".xml"):
            continue
        joined = ""  # a program divides words between runs
        for element, text in _texts(etree.fromstring(archive.read(name), _XML)):
            if _local(element) == "t":
                joined += text
            elif _local(element) not in _CODES:
                yield text
            if _local(element) in _PARTS:
                yield joined
                joined = ""
        yield joined


def _po(raw: bytes) -> Iterator[str]:
    for entry in polib.pofile(raw.decode()):
        if not entry.obsolete and not entry.translated():
            yield f"{entry.msgid} {entry.msgid_plural}"


def _xliff(raw: bytes) -> Iterator[str]:
    for unit in etree.fromstring(raw, _XML).iter("{*}trans-unit", "{*}segment"):
        is_kept = any(one.get("translate") == "no" for one in [unit, *unit.iterancestors()])
        target = unit.find("{*}target")
        if not is_kept and (target is None or not "".join(target.itertext()).strip()):
            for element, text in _texts(unit.find("{*}source")):
                if _local(element) not in ("ph", "bpt", "ept", "it", "x"):
                    yield text


def _texts(root: etree._Element) -> Iterator[tuple[etree._Element, str]]:
    """Each text of a tree, with the element that it stands in."""
    for element in root.iter(etree.Element):
        yield element, element.text or ""
        if element.tail and element is not root:
            yield element.getparent(), element.tail


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname


READERS = {
    "markdown": _markdown, "html": _html, "po": _po, "xliff": _xliff,
    **dict.fromkeys(("docx", "pptx", "xlsx", "odt", "odp"), _office),
}  # fmt: skip


def words_read(document: Document) -> Counter[str]:
    """The words of texts that are translated, and of parts that stay and are counted."""

    def texts(piece: MarkedText) -> Iterator[str]:
        yield piece.text
        for inner in piece.inner:
            yield from texts(inner)

    words: Counter[str] = Counter()
    for piece in document.pieces:
        if isinstance(piece, MarkedText | Stays):
            parts = texts(piece) if isinstance(piece, MarkedText) else [piece]
            words.update(word for part in parts for word in _WORD.findall(part))
    return words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=Path)
    parser.add_argument("--worst", type=int, default=3, help="files of each row that are named")
    arguments = parser.parse_args()
    rows, named = [], []
    for folder in arguments.folders:
        of_format: dict[str, list[Path]] = {}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            format = DOCUMENT_FORMATS.endings.get(file.suffix.lower(), "")
            if format in READERS:
                of_format.setdefault(format, []).append(file)
        for format, files in of_format.items():
            num_files, seen, missing, stay = 0, 0, Counter[Path](), Counter[str]()
            for file in files:
                raw = file.read_bytes()
                try:
                    document = read_document(raw, format, ("en", "de"), str(file))
                    texts = list(READERS[format](raw))
                except (InputError, etree.LxmlError, OSError, ValueError):
                    continue  # refused, or the other reader cannot read it
                words = Counter(word for text in texts for word in _WORD.findall(_ADDRESS.sub(" ", text)))
                num_files, seen, stay = num_files + 1, seen + words.total(), stay + document.stay
                lost = words - words_read(document)
                missing[file] = lost.total()
            named += [f"{file}: {count}" for file, count in missing.most_common(arguments.worst) if count]
            kinds = ", ".join(f"{count:,} {what}" for what, count in stay.items())
            counts = [f"{count:,}" for count in (num_files, len(files) - num_files, seen, missing.total())]
            rows.append([folder.name, format, *counts, kinds])
    print(table(rows, ["folder", "format", "files", "not read", "words", "missing", "counted"]))
    print("\n".join(named))


if __name__ == "__main__":
    main()
