"""The law of words over Markdown files of others: each word that a reader sees is in a text that is
translated or in a part that stays and is counted.

    python scripts/law_of_words.py FOLDER ... [--worst 3]

The words are those of markdown-it-py's tree (CommonMark with tables), without code, addresses, front matter,
marks of boxes, attribute lists and template blocks, which stay by the documentation. What is missing beyond
these is printed with its file.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt

from transformer_mt.companions.documents.markup.marked_text import MarkedText, Stays
from transformer_mt.companions.documents.read import Document, read_document
from transformer_mt.markdown import table

_WIDE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_WIDE}]|(?:(?![{_WIDE}])[^\W\d_]){{2,}}")
_MARKS = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|\{[#.:][^{}\n]*\}|\[\^[^\]]*\]|\[![A-Z]+\]"
    r"|(?m:^)[ \t]*(?::{3,}[^\s\[]*(?:[ \t]*[\w-]+)?|!!!\+?[ ]+[\w-]+|\?\?\?\+?[ ]+[\w-]+|===[+!]?)",
    re.DOTALL,
)
_ADDRESS = re.compile(r"https?://\S+|\S+/\S+/\S*")
_FRONT = re.compile(r"\A---\n.*?^---$", re.DOTALL | re.MULTILINE)


def words_of(text: str) -> Counter[str]:
    """The words that a reader sees."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    words: Counter[str] = Counter()
    for block in parser.parse(_MARKS.sub(" ", _FRONT.sub("", text))):
        for inline in block.children or []:
            if inline.type in ("text", "text_special", "image"):
                words.update(_WORD.findall(_ADDRESS.sub(" ", inline.content)))
    return words


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
    parser.add_argument("--worst", type=int, default=3, help="files of each folder that are named")
    arguments = parser.parse_args()
    rows, named = [], []
    for folder in arguments.folders:
        files = sorted(folder.rglob("*.md"))
        seen, missing, stay = 0, Counter[Path](), Counter[str]()
        for file in files:
            raw = file.read_bytes()
            document = read_document(raw, "markdown", ("en", "de"), str(file))
            words = words_of(raw.decode(errors="replace"))
            seen, stay = seen + words.total(), stay + document.stay
            lost = words - words_read(document)
            missing[file] = lost.total()
            named += [f"{file}: {dict(lost.most_common(5))}"] * (lost.total() > 20)
        kinds = ", ".join(f"{count:,} {what}" for what, count in stay.items())
        rows.append([folder.name, f"{len(files):,}", f"{seen:,}", f"{missing.total():,}", kinds])
    print(table(rows, ["folder", "files", "words", "missing", "counted"]))
    print("\n".join(named[: arguments.worst * len(arguments.folders)]))


if __name__ == "__main__":
    main()
