"""translate, transformer-mt translate"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from transformer_mt.cli.options.arguments import Parser, positive
from transformer_mt.cli.options.model_options import (
    add_model,
    add_resources,
    add_search,
    load_translator,
    resource_flags,
    translating_together,
)
from transformer_mt.cli.translating import resume
from transformer_mt.cli.translating.request import TranslateRequest, check_options, open_records
from transformer_mt.companion import resolve
from transformer_mt.errors import InputError
from transformer_mt.files import missing, to_json
from transformer_mt.messages import say
from transformer_mt.text.file_formats import brought_formats, format_of

if TYPE_CHECKING:
    from transformer_mt.translation.result import Options, Translation
    from transformer_mt.translator import Translator

_ABOUT = "Translate TEXT, or standard input as it arrives: one output line per input line, in order."


def add_arguments(parser: Parser) -> None:
    parser.description = _ABOUT
    add_model(parser)
    parser.add_argument(
        "text", metavar="TEXT", nargs="*", default=[], help="a sentence; default: the lines of standard input"
    )
    parser.add_argument(
        "-i",
        "--input",
        type=_file_or_stream,
        metavar="FILE",
        help="read sentences from FILE (.gz, .bz2, .xz, .zst); - is standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=_file_or_stream,
        metavar="FILE",
        help="write translations to FILE; - is standard output",
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue after the complete lines already in the --output file"
    )
    parser.add_argument(
        "--n-best",
        metavar="N",
        type=positive,
        default=1,
        help="print the N best of each line as LINE<tab>SCORE<tab>TRANSLATION",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument(
        "--align", action="store_true", help="with --json: the source token each target token attends to"
    )
    parser.add_argument("--prefix", metavar="TEXT", help="each translation begins with TEXT")
    parser.add_argument("--prefixes", metavar="FILE", help="each translation begins with its line of FILE")
    parser.add_argument(
        "--tag", metavar="TAG", help="a tag of the training corpora, put before each sentence"
    )
    add_resources(parser)
    parser.add_argument("--protect", metavar="REGEX", help="matching text passes through unchanged")
    parser.add_argument(
        "--format",
        choices=["text", *(name for formats in brought_formats() for name in formats.names)],
        help="format of the input (default: by the ending of --input or --output, else text): lines, or a "
        "document",
    )
    parser.add_argument("--retry", action="store_true", help="translate lines that look wrong again")
    add_search(parser)
    parser.show(
        text=("--input", "--output", "--format", "--resume"),
        translation=("--to", "--from", *resource_flags(), "--protect", "--beam", "--n-best", "--json"),
        others=("--device", "--set", "--help-all"),
    )
    parser.set_defaults(command=_translate, when_stopped=_when_stopped)


def _file_or_stream(name: str) -> str | None:
    """The file name, or None for `-`, which is standard input or output."""
    return None if name == "-" else name


def _translate(arguments: argparse.Namespace) -> int:
    request = TranslateRequest.of(arguments)
    check_options(request)
    for text in request.text:
        if Path(text).suffix and os.path.isfile(text):  # false for what cannot be a name
            raise InputError(f"TEXT must be a text, but {text} is a file; give it as --input {text}")
    known = brought_formats()
    output = None if request.json else request.output
    format = request.format or format_of(known, request.input, output)
    documents = next((formats for formats in known if format in formats.names), None)
    if documents is not None:
        resolve(documents.translate)(request, format)
    else:
        _translate_lines(request)
    if request.output and Path(request.output).is_file():
        say(f"written: {request.output}")
    return 0


def _when_stopped(arguments: argparse.Namespace) -> str:
    is_resumable = TranslateRequest.of(arguments).may_resume
    return "; run it again with --resume to continue" if is_resumable else ""


def _translate_lines(request: TranslateRequest) -> None:
    with ExitStack() as files:
        chunks = _chunks(request, files)
        options = _options(request)
        loaded = load_translator(request.model, options)
        loaded.check(options)
        with translating_together(loaded) as translator:
            if translator is not None:
                _translate_chunks(request, translator, options, chunks, files)


def _translate_chunks(
    request: TranslateRequest,
    translator: "Translator",
    options: "Options",
    chunks: Iterator[list[bytes]],
    files: ExitStack,
) -> None:
    from transformer_mt.evaluation.scoring import ExpectedQuality

    prefixes = _prefixes(request)
    done = _lines_done(request, translator) if request.resume else 0
    work = _work(chunks, prefixes, request, done)
    # Read the first lines before the output is opened and truncated: the input may be binary.
    first_task = next(work, None)
    record = open_records(request, translator, files)
    output, end = _open_output(request, translator, files), _line_end(request)
    bar, quality = _progress(request, done, files), ExpectedQuality(translator.resources.calibration)
    for task in chain([first_task] if first_task else [], work):
        results = translator.stream(task.lines, task.options(options))
        for number, result in enumerate(results, start=task.first):
            _write(_format(number, result, request), number, result.problems, output, end)
            output.flush()  # a caller may wait for this line
            quality.add(result)
            if "unchanged" not in result.flags:
                record(result.source, result.translation)
            bar(1)
    if request.json and (expected := quality.expected):
        say(f"{expected} of these {expected.sentences:,} lines, by their confidence")
    elif request.json and quality.withheld:
        say(quality.withheld)
    if request.output:
        resume.end(Path(request.output))


def _options(request: TranslateRequest) -> "Options":
    from transformer_mt.translation.result import Options

    return Options(
        request.n_best, align=request.align, protect=request.protect, tag=request.tag, retry=request.retry
    )


def _chunks(request: TranslateRequest, files: ExitStack) -> Iterator[list[bytes]]:
    """Chunks of lines to translate. From a pipe or terminal, a chunk has the lines available so far."""
    from transformer_mt.text.lines import open_bytes, read_ready
    from transformer_mt.translator import ChunkSize

    if request.text:
        if any("\n" in text for text in request.text):
            raise InputError(
                "TEXT must be one line, but has several; give each as a TEXT, or use --input FILE"
            )
        return iter([[os.fsencode(text) for text in request.text]])
    if not request.input and sys.stdin is None:
        raise InputError("standard input is closed; give TEXT or --input FILE")
    source = files.enter_context(open_bytes(request.input)) if request.input else sys.stdin.buffer
    return read_ready(source, request.input or "standard input", ChunkSize().next)


class Task(NamedTuple):
    """Lines to translate."""

    first: int
    """The number of the first line that is translated."""
    lines: list[str]
    prefixes: list[str] | None

    def options(self, options: "Options") -> "Options":
        """The options of the call, for these lines."""
        return replace(options, prefixes=self.prefixes)


def _work(
    chunks: Iterator[list[bytes]], prefixes: Iterator[str] | None, request: TranslateRequest, done: int
) -> Iterator[Task]:
    """Tasks for the lines after the first `done`. InputError if lines are missing or prefixes do not fit."""
    from transformer_mt.text.lines import refuse_binary

    first = 1
    for chunk in chunks:
        refuse_binary(chunk, first, request.input or "standard input")
        lines = [_decode(line, number) for number, line in enumerate(chunk, start=first)]
        line_prefixes = None if prefixes is None else [next(prefixes, None) for _ in lines]
        if line_prefixes is not None and None in line_prefixes:
            raise InputError(
                f"{request.prefixes}: must have one prefix per input line, but ends at line "
                f"{first + line_prefixes.index(None) - 1}"
            )
        skipped = min(max(0, done - first + 1), len(lines))
        first += len(lines)
        if skipped < len(lines):
            rest = None if line_prefixes is None else [prefix or "" for prefix in line_prefixes[skipped:]]
            yield Task(first - len(lines) + skipped, lines[skipped:], rest)
    if request.prefixes and prefixes is not None and next(prefixes, None) is not None:
        raise InputError(
            f"{request.prefixes}: must have one prefix per input line, but has more than {first - 1}"
        )
    if first <= done:
        raise InputError(
            f"{request.output}: holds {done} lines, but the input has {first - 1}; was it written from "
            "another input file?"
        )


def _prefixes(request: TranslateRequest) -> Iterator[str] | None:
    """Prefixes of the translations, or None. A missing file is an InputError now, not at the first line."""
    if request.prefixes:
        from transformer_mt.text.lines import open_bytes, read_lines

        open_bytes(request.prefixes).close()
        return read_lines(request.prefixes)
    prefix = request.prefix
    return None if prefix is None else repeat(os.fsencode(prefix).decode("utf-8", errors="replace"))


def _facts(request: TranslateRequest, translator: "Translator") -> dict[str, str]:
    """The settings and files that the output depends on; --resume compares them with the saved record."""
    names = ("json", "n_best", "align", "prefix")
    return resume.record_of(request, translator, names, {"the prefixes": request.prefixes})


def _lines_done(request: TranslateRequest, translator: "Translator") -> int:
    """Number of finished lines; a last incomplete one is cut off. InputError if other settings wrote it."""
    from transformer_mt.text.lines import cut_to_whole_lines

    assert request.output is not None  # check_options
    output = Path(request.output)
    if output.exists() and output.stat().st_size:
        resume.check(output, _facts(request, translator))
    count = cut_to_whole_lines(output)
    say(f"{output}: resuming after {count:,} lines")
    return count


def _open_output(request: TranslateRequest, translator: "Translator", files: ExitStack) -> IO[bytes]:
    """Open the output file. Without `--resume` this truncates it, so all checks must come first."""
    if not request.output:
        return sys.stdout.buffer
    output = Path(request.output)
    try:
        opened = files.enter_context(output.open("ab" if request.resume else "wb"))
        # Only a new regular file needs a record; making one hashes all files that are read.
        if output.is_file() and not output.stat().st_size:
            resume.begin(output, _facts(request, translator))
        return opened
    except OSError as error:
        if output.is_symlink() and not output.exists():
            raise InputError(missing(output)) from None
        raise InputError(f"{output}: cannot be written: {error.strerror}") from None


def _progress(request: TranslateRequest, done: int, files: ExitStack) -> Any:
    """The update function of a progress bar on stderr. It does nothing if lines are typed or shown there."""
    reads_file = bool(request.input) or not (request.text or sys.stdin is None or sys.stdin.isatty())
    if not reads_file or not sys.stderr.isatty() or (not request.output and sys.stdout.isatty()):
        return lambda lines: None
    from transformer_mt.progress_bar import show_progress
    from transformer_mt.text.lines import count_lines

    total = count_lines(request.input) if request.input else None
    return files.enter_context(show_progress(None, "translating", total, done)).update


def _decode(line: bytes, number: int) -> str:
    try:
        # Some editors begin a file with a byte-order mark; it is not part of the first sentence.
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        say(f"line {number}: byte {error.object[error.start]:#04x} is not UTF-8; it was read as U+FFFD")
        return line.decode("utf-8", errors="replace")


def _line_end(request: TranslateRequest) -> bytes:
    """The end of each line: as in the first line of the input, where that is a file of text."""
    from transformer_mt.text.lines import open_bytes

    if request.json or not request.input or not os.path.isfile(request.input):
        return b"\n"
    with open_bytes(request.input) as file:
        return b"\r\n" if file.readline().endswith(b"\r\n") else b"\n"


def _write(text: str, number: int, problems: list[str], output: IO[bytes], end: bytes) -> None:
    for problem in problems:
        say(f"line {number}: {problem}")
    output.write(text.encode() + end)


def _format(number: int, result: "Translation", request: TranslateRequest) -> str:
    if request.json:
        facts: dict[str, Any] = {"line": number, **vars(result)}
        if request.tag:
            facts["tag"] = request.tag
        if request.n_best > 1:
            shown = ("translation", "score", "log_prob", "tokens")
            facts["n_best"] = [{name: vars(c)[name] for name in shown} for c in result.n_best]
        else:
            del facts["n_best"]
        if not request.align:
            del facts["source_tokens"], facts["alignment"]
        return to_json(facts, ensure_ascii=False)
    if request.n_best > 1:
        return "\n".join(f"{number}\t{c.score:.4f}\t{c.translation}" for c in result.n_best)
    return result.translation
