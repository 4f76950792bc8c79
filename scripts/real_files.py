"""Read every document below a folder, write it back without a translation and in capitals, and report what
happened: refusals, exceptions, differences, seconds of reading, parts that stay, by format, and the slowest
files.

    python scripts/real_files.py FOLDER [--format docx] [--worst 10]

A file that is written back without a translation must be the same, byte for byte, or for a zip file in each
of its members. In capitals it must be read again, with the same number of texts.
"""

import argparse
import time
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformer_mt.companions.documents.formats import DOCUMENT_FORMATS
from transformer_mt.companions.documents.markup.marked_text import MarkedText
from transformer_mt.companions.documents.office.package import read_members
from transformer_mt.companions.documents.read import Document, read_document
from transformer_mt.errors import InputError
from transformer_mt.messages import table
from transformer_mt.text.file_formats import format_of

_LANGUAGES = "en", "de"


@dataclass
class Outcome:
    """One file."""

    path: Path
    format: str
    seconds: float = 0.0
    texts: int = 0
    stay: Counter[str] = field(default_factory=Counter)
    refusal: str = ""
    exception: str = ""
    difference: str = ""


def outcome_of(path: Path, format: str) -> Outcome:
    outcome, raw = Outcome(path, format), path.read_bytes()
    begin = time.process_time()
    try:
        document = read_document(raw, format, _LANGUAGES, path.name)
        outcome.seconds = time.process_time() - begin
        outcome.texts, outcome.stay = len(document.texts), document.stay
        same = document.written("".join(rendered(piece) for piece in document.pieces))
        if not is_same(raw, same, document):
            outcome.difference = "is not the same without a translation"
        capitals = document.written("".join(rendered(in_capitals(piece)) for piece in document.pieces))
        again = read_document(capitals, format, _LANGUAGES, path.name)
        if len(again.texts) != len(document.texts):
            outcome.difference += f" has {len(again.texts)} texts in capitals, not {len(document.texts)}"
    except InputError as error:
        outcome.refusal = str(error)
    except Exception:
        outcome.exception = traceback.format_exc()
    return outcome


def rendered(piece: Any) -> str:
    return piece if isinstance(piece, str) else piece.render()


def in_capitals(piece: Any) -> Any:
    if not isinstance(piece, MarkedText):
        return piece
    text = "".join(c.upper() if len(c.upper()) == 1 else c for c in piece.text)
    return replace(piece, text=text, inner=tuple(map(in_capitals, piece.inner)))


def is_same(raw: bytes, written: bytes, document: Document) -> bool:
    if document.office is None:
        return raw == written
    members = [{m.info.filename: m.content for m in read_members(file, "")} for file in (raw, written)]
    return members[0] == members[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", help="only files of this format")
    parser.add_argument("--worst", type=int, default=10, help="how many files are named of each kind")
    arguments = parser.parse_args()
    outcomes: dict[str, list[Outcome]] = defaultdict(list)
    for path in sorted(arguments.folder.rglob("*")):
        try:
            format = format_of([DOCUMENT_FORMATS], path.name, None)
        except InputError:
            continue
        if path.is_file() and format != "text" and arguments.format in (None, format):
            outcomes[format].append(outcome_of(path, format))
    rows = [
        [
            format, len(files), sum(bool(one.refusal) for one in files),
            sum(bool(one.exception) for one in files),
            sum(not (one.refusal or one.exception or one.difference) for one in files),
            sum(one.texts for one in files), sum(one.stay.total() for one in files),
            f"{sum(one.seconds for one in files):.1f}", f"{max(one.seconds for one in files):.2f}",
        ]
        for format, files in sorted(outcomes.items())
    ]  # fmt: skip
    head = ["format", "files", "refused", "exceptions", "same", "texts", "stay", "seconds", "slowest"]
    print(table(rows, head))
    every = [one for files in outcomes.values() for one in files]
    for title, lines in {
        "slowest": [f"{one.seconds:.2f} s  {one.path}" for one in sorted(every, key=lambda o: -o.seconds)],
        "exceptions": [f"{one.path}: {one.exception}" for one in every if one.exception],
        "differences": [f"{one.path}{one.difference}" for one in every if one.difference],
        "refused": [one.refusal for one in every if one.refusal],
    }.items():
        print(f"\n{title}: {len(lines)}", *lines[: arguments.worst], sep="\n  ")


if __name__ == "__main__":
    main()
