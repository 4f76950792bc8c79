"""The command `translate` for a document: part by part, resumed after the last whole one."""

import argparse
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from transformer_mt.cli.arguments import Parser
from transformer_mt.cli.model_options import has_ranks, load_translator
from transformer_mt.cli.translate import (
    TranslateRequest,
    begin_record,
    check_record,
    end_record,
    open_sinks,
    record_of,
)
from transformer_mt.companions.documents.formats import OFFICE
from transformer_mt.errors import InputError, WorkError
from transformer_mt.files import to_json, write_bytes
from transformer_mt.messages import say

if TYPE_CHECKING:
    from transformer_mt.companions.documents.read import Document

_SHOWN = ("source", "translation", "confidence", "flags")
"""The facts that --json shows of each translation."""


def add_options(parser: Parser) -> None:
    """The options of `translate` for documents alone."""
    parser.add_argument(
        "--attributes",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with --format html: also translate alt, title, placeholder, aria-label and descriptions",
    )


def translate(request: TranslateRequest, format: str) -> None:
    """Write the document part by part, each as soon as it is translated."""
    _check_options(request, format)
    from transformer_mt.companions.documents.document_translation import translate_pieces
    from transformer_mt.companions.documents.read import read_document
    from transformer_mt.evaluation.scoring import ExpectedQuality
    from transformer_mt.translation.result import Options

    name, raw = _read(request)
    options = Options(align=True, protect=request.protect, tag=request.tag)
    translator = load_translator(request.model, options)
    translator.check(options)
    languages = translator.source_lang, translator.target_lang
    document = read_document(raw, format, languages, name, request.others["attributes"])
    total = len(document.texts)
    for remark in document.remarks:
        say(f"note: {name}: {remark}")
    facts = record_of(request, translator) | {"the setting --format": format}
    facts["the setting --attributes"] = str(request.others["attributes"])
    facts["the input"] = hashlib.sha256(raw).hexdigest()  # standard input, too
    with ExitStack() as files:
        keep = open_sinks(request, translator, files)
        resumed, output = _open_output(request, facts, document, files)
        done = resumed or 0
        if resumed is not None:
            say(f"{request.output}: resuming after {min(done, total):,} of {total:,} texts")
        bar = _progress(total, min(done, total), request, files)
        quality, flags = ExpectedQuality(translator.resources.calibration), Counter[str]()
        parts = translate_pieces(
            translator, document.pieces, request.tag, request.protect, done, request.retry
        )
        for number, part in enumerate(parts, start=done + 1):
            text = f" ({part.results[0].source[:40]!r})" if part.results else ""
            for problem in part.problems:
                say(f"text {number}{text}: {problem}")
            output.write(part.written)
            for pair in part.pairs:
                keep(*pair)
            if request.json and part.results:
                rows = [{key: vars(result)[key] for key in _SHOWN} for result in part.results]
                _print({"text": number, "parts": rows, "problems": part.problems})
            for result in part.results:
                quality.add(result)
                flags.update(result.flags)
            bar(number <= total)
        output.end()
    if request.json:
        expected = (of := quality.expected) and vars(of)
        withheld = {"withheld": quality.withheld} if quality.withheld else {}
        _print({"document": name, "texts": total, "flags": flags, "expected": expected, **withheld})


def _print(facts: dict[str, Any]) -> None:
    """Write a line of JSON, at once."""
    sys.stdout.write(to_json(facts, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _check_options(request: TranslateRequest, format: str) -> None:
    given = {
        "--n-best": request.n_best > 1,
        "--prefix": request.prefix is not None,
        "--prefixes": request.prefixes is not None,
    }
    if request.json and (not request.output or request.resume):
        raise InputError(
            "--json prints what is known about each text of a document: give --output FILE for the document, "
            "and leave out --resume"
        )
    if format in OFFICE and not request.output:
        raise InputError(f"a .{format} document must be written to a file; give --output FILE")
    if wrong := next((option for option, is_given in given.items() if is_given), None):
        raise InputError(f"{wrong} requires --format text, but the format is {format}")
    if has_ranks():
        raise InputError("a document must be translated by one process; start it without torchrun")


def _read(request: TranslateRequest) -> tuple[str, bytes]:
    """(name, content) of the document."""
    from transformer_mt.text.lines import DAMAGED, open_bytes

    if request.text:
        return "TEXT", "".join(f"{text}\n" for text in request.text).encode(errors="surrogateescape")
    if request.input:
        with open_bytes(request.input) as file:
            try:
                return request.input, file.read()
            except DAMAGED as error:
                raise InputError(f"{request.input}: cannot be read: {error}") from None
    if sys.stdin is None:
        raise InputError("standard input is closed; give TEXT or --input FILE")
    return "standard input", sys.stdin.buffer.read()


class _Output:
    """The translated document, and next to it the size it had after each part: a resumed translation
    continues after the last whole part.
    """

    def __init__(
        self,
        file: IO[bytes],
        document: "Document",
        sizes: IO[bytes] | None = None,
        path: Path | None = None,
        whole: Path | None = None,
    ) -> None:
        """`path` is the path of `file`. If the finished document is another file, `whole` is its path."""
        self._file, self._document, self._sizes = file, document, sizes
        self._path, self._whole = path, whole

    def write(self, text: str) -> None:
        self._file.write(self._document.encoded(text))
        self._file.flush()
        if self._sizes is not None:
            self._sizes.write(b"%d\n" % self._file.tell())
            self._sizes.flush()

    def end(self) -> None:
        """All parts are written: nothing is left to resume."""
        if self._path is None:
            return
        if self._whole is not None:
            try:
                write_bytes(self._whole, self._document.written(self._path.read_bytes().decode()))
            except OSError as error:
                raise WorkError(f"{self._whole}: cannot be written: {error.strerror}") from None
            self._path.unlink()
        _sizes_file(self._path).unlink(missing_ok=True)
        end_record(self._path)


def _sizes_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.resume.sizes")


def _open_output(
    request: TranslateRequest, facts: dict[str, str], document: "Document", files: ExitStack
) -> tuple[int | None, _Output]:
    """The number of texts that are translated already (None unless the translation is resumed), and the
    output. The translated texts of an office document are collected in a file next to it.
    """
    if not request.output:
        return None, _Output(sys.stdout.buffer, document)
    path, whole = Path(request.output), None
    if document.office is not None:
        path, whole = path.with_name(f".{path.name}.resume.text"), path
    done = None
    if request.resume:
        done = 0
        if path.exists() and path.stat().st_size:
            check_record(path, facts)
            done = _cut_to_whole_parts(path)
    try:
        file = files.enter_context(path.open("ab" if done else "wb"))
        if not path.is_file():  # a device or a pipe is not resumed
            return done, _Output(file, document)
        sizes = files.enter_context(_sizes_file(path).open("ab" if done else "wb"))
        if not done:
            begin_record(path, facts)
        return done, _Output(file, document, sizes, path, whole)
    except OSError as error:
        raise InputError(f"{request.output}: cannot be written: {error.strerror}") from None


def _cut_to_whole_parts(path: Path) -> int:
    """Truncate the output after its last whole part, and return the number of parts."""
    try:
        lines = _sizes_file(path).read_bytes().splitlines(keepends=True)
    except OSError:
        lines = []
    size = path.stat().st_size
    numbers = takewhile(lambda line: re.fullmatch(rb"[0-9]+\n", line), lines)  # until a damaged one
    whole = [int(number) for number in numbers if int(number) <= size]
    with path.open("r+b") as file:
        file.truncate(whole[-1] if whole else 0)
    _sizes_file(path).write_bytes(b"".join(b"%d\n" % size for size in whole))
    return len(whole)


def _progress(total: int, done: int, request: TranslateRequest, files: ExitStack) -> Callable[[int], object]:
    """Counts texts in a progress bar on stderr, if that is a terminal where no translation is printed."""
    if not sys.stderr.isatty() or (not request.output and sys.stdout.isatty()):
        return lambda texts: None
    from transformer_mt.messages import show_progress

    return files.enter_context(show_progress(None, "translating", total, done, "texts")).update
