"""The law of words by what shows a document to a person: LibreOffice for office documents, Chromium for HTML
and EPUB. Each word that they show is in a text that is translated, or the document counts what stays.

    apt install libreoffice-nogui poppler-utils chromium
    python scripts/shown_words.py FOLDER ... [--most 100] [--worst 10]

Every text is written with its Latin letters thirteen places further in the alphabet ("dog" is "qbt"). The
words that are shown then (the PDF that LibreOffice makes, innerText and the accessibility tree of Chromium
without scripts) are translated if they are such words; others stay. Documents with words that stay and
without a count are named, with the words.
"""

import argparse
import codecs
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unicodedata
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from transformer_mt.companions.documents.formats import DOCUMENT_FORMATS
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.read import read_document
from transformer_mt.errors import InputError
from transformer_mt.messages import table
from transformer_mt.text.file_formats import format_of

_OFFICE = ("docx", "pptx", "xlsx", "odt", "odp")
_WORD = re.compile(r"[A-Za-z]{3,}")
_ADDRESS = re.compile(r"\S+@\S+|(?:https?://|www\.)\S+")
"""What the documentation says that it stays."""
_ROMAN = re.compile(r"[ivxlc]+|[IVXLC]+")
"""Numbers that LibreOffice writes before paragraphs."""
_JOINED = re.compile(r"(?<=[a-z])(?=[A-Z])")
_OWN = {"page", "error", "formularfeld"}
"""Words that LibreOffice writes by itself: footers of sheets, references that lead nowhere."""
_SECONDS = 90
_CODE = re.compile(r"<(code|pre|kbd|samp|var|tt)\b[^<>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_LANGUAGE = re.compile(r"<html\b[^<>]*\slang=[\"']?([\w-]+)", re.IGNORECASE)


@dataclass
class Shown:
    """One document."""

    path: Path
    format: str
    texts: str = ""
    """All texts, in small letters."""
    stay: Counter[str] = field(default_factory=Counter)
    words: int = 0
    left: Counter[str] = field(default_factory=Counter)
    """Words that are shown as they were."""

    def count(self, shown: str) -> None:
        for word in _WORD.findall(unicodedata.normalize("NFKC", _ADDRESS.sub(" ", shown))):
            if _ROMAN.fullmatch(word):
                continue
            self.words += 1
            parts = [part.lower() for part in _JOINED.split(word)]  # the accessibility tree joins names
            if not all(turned(part) in self.texts or part in _OWN for part in parts):
                self.left[word] += 1


def turned(text: str) -> str:
    return codecs.encode(text, "rot13")


def rendered(piece: Any) -> str:
    return piece.render() if isinstance(piece, MarkedText) else piece


def in_other_letters(piece: Any) -> Any:
    if not isinstance(piece, MarkedText):
        return piece if isinstance(piece, str) else piece.render()
    return replace(piece, text=turned(piece.text), inner=tuple(map(in_other_letters, piece.inner)))


def all_text(piece: MarkedText) -> Iterator[str]:
    yield piece.text
    for inner in piece.inner:
        if isinstance(inner, MarkedText):
            yield from all_text(inner)


def translated(path: Path, format: str) -> tuple[Shown, bytes]:
    document = read_document(path.read_bytes(), format, ("en", "de"), path.name)
    texts = " ".join(text for piece in document.texts for text in all_text(piece))
    shown = Shown(path, format, unicodedata.normalize("NFKC", texts).lower(), document.stay)
    return shown, document.written("".join(rendered(in_other_letters(piece)) for piece in document.pieces))


def by_libreoffice(file: Path, folder: Path) -> str | None:
    """The text of the PDF; None where there is none."""
    profile = f"-env:UserInstallation=file://{folder}/profile"
    command = ["soffice", profile, "--headless", "--convert-to", "pdf", "--outdir", str(folder), str(file)]
    pdf = folder / f"{file.stem}.pdf"
    pdf.unlink(missing_ok=True)
    # In a session of its own: what `soffice` starts would go on after it is killed.
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None
    if not pdf.exists():
        return None
    text = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], capture_output=True, check=False).stdout
    return text.decode("utf-8", "replace")


def by_chromium(browser: Browser, file: Path) -> str | None:
    """The text of the page and of its accessibility tree. Code, and attributes of pages in other languages,
    are left out: the documentation says that they stay.
    """
    text = file.read_bytes().decode("utf-8", "surrogateescape")
    file.write_bytes(_CODE.sub("", text).encode("utf-8", "surrogateescape"))
    language = _LANGUAGE.search(text)
    page = browser.new_page(java_script_enabled=False, offline=True)
    try:
        page.goto(file.as_uri(), timeout=1000 * _SECONDS)
        session = page.context.new_cdp_session(page)
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
        told = [node.get(key, {}).get("value", "") for node in nodes for key in ("name", "description")]
        if language and not language[1].lower().startswith("en"):
            told = []
        return "\n".join([page.inner_text("body"), page.title(), *map(str, told)])
    except Exception:  # pages of frames, files that are no pages
        return None
    finally:
        page.close()


def shown_of(path: Path, format: str, folder: Path, browser: Browser) -> Shown | None:
    """None where nothing shows the document."""
    shown, written = translated(path, format)
    file = folder / f"document.{path.suffix[1:].lower()}"
    file.write_bytes(written)
    if format in _OFFICE:
        texts = [by_libreoffice(file, folder)]
    elif format == "html":
        texts = [by_chromium(browser, file)]
    else:
        book = folder / "book"
        shutil.rmtree(book, ignore_errors=True)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(book)
        pages = [page for page in book.rglob("*") if page.suffix in (".xhtml", ".html", ".htm")]
        texts = [by_chromium(browser, page) for page in pages]
    for text in filter(None, texts):
        shown.count(text)
    return shown if any(texts) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--most", type=int, default=100, help="files of a format, evenly spaced")
    parser.add_argument("--worst", type=int, default=10, help="how many documents are named")
    arguments = parser.parse_args()
    files = defaultdict(list)
    for path in sorted(path for folder in arguments.folders for path in folder.rglob("*") if path.is_file()):
        try:
            format = format_of([DOCUMENT_FORMATS], path.name, None)
        except InputError:
            continue
        if format in (*_OFFICE, "html", "epub"):
            files[format].append(path)
    rows, worst = [], []
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--allow-file-access-from-files"]
        )
        for format, paths in sorted(files.items()):
            num_refused, documents = 0, []
            for path in paths[:: max(1, len(paths) // arguments.most)]:
                try:
                    shown = shown_of(path, format, Path(name), browser)
                except InputError:
                    num_refused += 1
                    continue
                if shown is not None:
                    documents.append(shown)
            silent = [one for one in documents if one.left and not one.stay]
            counted = sum(one.left.total() for one in documents if one.stay)
            kinds = sum((one.stay for one in documents), Counter[str]())
            said = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(4))
            words, left = sum(one.words for one in documents), sum(one.left.total() for one in silent)
            rows.append([format, len(documents), num_refused, f"{words:,}", counted, left, len(silent), said])
            worst += silent
    head = [
        "format",
        "files",
        "refused",
        "words shown",
        "stay, counted",
        "stay, not counted",
        "files",
        "counts",
    ]
    print(table(rows, head))
    for one in sorted(worst, key=lambda one: -one.left.total())[: arguments.worst]:
        print(f"{one.path}: {', '.join(f'{word} {n}' for word, n in one.left.most_common(12))}")


if __name__ == "__main__":
    main()
