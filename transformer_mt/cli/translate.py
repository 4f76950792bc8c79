"""`translate` and `transformer-mt translate`: translate lines of a file, standard input or the command line.

This file has, in this order: the request and which options may be combined; the sinks that get translations
besides the output; what --resume compares; the command.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from transformer_mt.cli.arguments import Parser, positive
from transformer_mt.cli.model_options import (
    ModelRequest,
    add_model,
    add_resources,
    add_search,
    load_translator,
    translating_together,
)
from transformer_mt.companion import hooks, resolve
from transformer_mt.errors import InputError, Setting, advice_on
from transformer_mt.files import digest, missing, to_json, write_text
from transformer_mt.messages import say
from transformer_mt.text.file_formats import brought_formats, format_of

if TYPE_CHECKING:
    from transformer_mt.translation.result import Options, Translation
    from transformer_mt.translator import Translator


@dataclass(frozen=True)
class TranslateRequest:
    """A request of the command: the model, the text, and how the translations are written."""

    model: ModelRequest
    text: tuple[str, ...]
    input: str | None
    """The file of sentences; None is standard input, unless there is `text`."""
    output: str | None
    """The file of translations; None is standard output."""
    format: str | None
    resume: bool
    n_best: int
    json: bool
    align: bool
    prefix: str | None
    prefixes: str | None
    tag: str | None
    protect: str | None
    retry: bool
    others: Mapping[str, Any]
    """All values of the command line, for the options that companions add."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "TranslateRequest":
        names = cls.__dataclass_fields__.keys() - {"model", "text", "others"}
        values = {name: getattr(arguments, name) for name in names}
        return cls(ModelRequest.of(arguments), tuple(arguments.text), others=vars(arguments), **values)

    @property
    def may_resume(self) -> bool:
        """True if the command can be run again with --resume."""
        return bool(self.output and not sinks_of(self) and (self.n_best == 1 or self.json))


def check_options(request: TranslateRequest) -> None:
    """Refuse options that exclude each other, before anything is loaded."""
    if request.text and request.input:
        raise InputError("give TEXT or --input, not both")
    if request.align and not request.json:
        raise InputError("--align requires --json, which shows it")
    if request.prefix is not None and request.prefixes:
        raise InputError("give --prefix or --prefixes, not both")
    if request.resume and not request.output:
        raise InputError("--resume requires --output FILE, which it completes")
    if request.resume and request.n_best > 1 and not request.json:
        raise InputError("--resume requires one line of output per input line; with --n-best use --json")
    if request.output and request.output.endswith((".gz", ".bz2", ".xz", ".zst")):
        raise InputError(
            f"--output must be the name of a text file, but is {request.output}; compress it later"
        )
    for sink in sinks_of(request):
        sink.check(request)
    if request.output:
        _check_output_is_not_input(request, Path(request.output))
    elif sys.stdout is None:
        raise InputError("standard output is closed; give --output FILE")


def _check_output_is_not_input(request: TranslateRequest, output: Path) -> None:
    """Raise InputError if the output is also an input: opening or resuming it would truncate it. So are the
    corpora of the model.
    """
    if not output.is_file():
        return
    from transformer_mt.run_folder import RunFolder

    run = RunFolder(request.model.model)
    if run.is_run and str(output.resolve()) in map(os.path.realpath, _texts(run.config().data.model_dump())):
        raise InputError(f"{output}: must not be a file that the model was trained with; name another")
    read = (request.input, request.prefixes, *request.model.resources.values())
    sources = [os.stat(name) for name in read if name and Path(name).exists()]
    if not request.text and not request.input and sys.stdin is not None:
        sources.append(os.fstat(0))
    if any(os.path.samestat(source, os.stat(output)) for source in sources):
        raise InputError(
            f"{output}: the output must not be an input; name another file with ", Setting("output")
        )


def _texts(value: Any) -> Iterator[str]:
    """Every text in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


class TranslationSink(Protocol):
    """A destination of translations besides the output. A companion's hook `translation_sink` returns one
    for a request that asks for it.
    """

    def check(self, request: TranslateRequest) -> None:
        """Raise InputError, before any work, if the sink's options conflict with others of the request."""
        ...

    def open(self, languages: tuple[str, str]) -> AbstractContextManager[Callable[[str, str], None]]:
        """A function that is called with each source text and its translation."""
        ...


def sinks_of(request: TranslateRequest) -> list[TranslationSink]:
    return [sink for hook in hooks("translation_sink") if (sink := hook(request)) is not None]


def open_sinks(
    request: TranslateRequest, translator: "Translator", files: ExitStack
) -> Callable[[str, str], None]:
    """A function that gives a source text and its translation to all sinks."""
    languages = translator.source_lang, translator.target_lang
    adders = [files.enter_context(sink.open(languages)) for sink in sinks_of(request)]

    def add(source: str, translation: str) -> None:
        for adder in adders:
            adder(source, translation)

    return add


def record_file(output: Path) -> Path:
    return output.with_name(f".{output.name}.resume.json")


def record_of(
    request: TranslateRequest,
    translator: "Translator",
    names: Sequence[str] = (),
    files: Mapping[str, str | None] | None = None,
) -> dict[str, str]:
    """The settings and files that the output of `translate` depends on. `names` are options that only the
    translation of plain text has, `files` are the files that are read besides the input.
    """
    model = replace(request.model, source_lang=translator.source_lang, target_lang=translator.target_lang)
    decode = translator.decode.model_dump(exclude={"batch_tokens"})
    settings = {f"decode.{key}": value for key, value in decode.items()}
    settings["languages"] = f"{translator.source_lang} to {translator.target_lang}"
    settings |= {"--engine": model.engine.engine, "--dtype": model.engine.dtype}
    for name in (*names, "protect", "tag", "text", "retry"):
        settings[f"--{name.replace('_', '-')}"] = getattr(request, name)
    models = [run.path for run in (model.run(), *model.other_runs())]
    read = {"the input": request.input, **(files or {})}
    read |= {f"the {name}": file for name, file in model.resources.items()}
    return facts(models, settings, read)


def facts(models: list[Path], settings: dict[str, Any], files: dict[str, str | None]) -> dict[str, str]:
    """The facts that a translation depends on, as texts by name: the models, the settings, and the contents
    of input files.

    Standard input is not among them: it cannot be read twice.
    """
    from transformer_mt.run_folder import RunFolder

    facts_by_name = {
        f"the setting {name}": json.dumps(value, ensure_ascii=False) for name, value in settings.items()
    }
    for number, folder in enumerate(models):
        files_of_model = RunFolder(folder).translation_files
        facts_by_name["the model" if number == 0 else f"model {number + 1}"] = digest(*files_of_model)
    for name, path in files.items():
        facts_by_name[name] = digest(Path(path)) if path and os.path.isfile(path) else "none"
    return facts_by_name


def begin_record(output: Path, now: dict[str, str]) -> None:
    """Record what begins to be written to `output`."""
    write_text(record_file(output), json.dumps(now, ensure_ascii=False, indent=1) + "\n")


def check_record(output: Path, now: dict[str, str]) -> None:
    """InputError unless what is in `output` was written from the same models, settings and files."""
    again = "translate it again without --resume"
    try:
        before = json.loads(record_file(output).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(
            f"{output}: cannot be resumed: its record ({record_file(output).name}) is missing or "
            f"damaged; {again}"
        ) from None
    changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
    if changed:
        name = min(changed)
        values = f" ({before.get(name)} then, {now.get(name)} now)" if name.startswith("the setting") else ""
        raise InputError(
            f"{output}: was begun with another value of {name}{values}, so it cannot be resumed; {again}"
        )


def end_record(output: Path) -> None:
    """The output is complete: there is nothing to resume."""
    record_file(output).unlink(missing_ok=True)


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
    parser.add_argument("--protect", metavar="REGEX", help="matching text passes through unchanged")
    parser.add_argument(
        "--format",
        choices=["text", *(name for formats in brought_formats() for name in formats.names)],
        help="format of the input (default: by the ending of --input or --output, else text): lines, or a "
        "document",
    )
    parser.add_argument(
        "--retry", action="store_true", help="translate a line again if its translation looks wrong"
    )
    add_search(parser)
    # Added last: if a resource's option has the name of another option, the resource is left out.
    resources = add_resources(parser)
    parser.show(
        text=("--input", "--output", "--format", "--resume"),
        translation=("--to", "--from", *resources, "--protect", "--beam", "--n-best", "--json"),
        others=("--device", "--set", "--help-all"),
    )
    parser.set_defaults(command=_translate, when_stopped=_when_stopped)


def _file_or_stream(name: str) -> str | None:
    """The file name, or None for `-`, which is standard input or output."""
    return None if name == "-" else name


def _tell_of_words(request: TranslateRequest) -> None:
    """Say that several TEXTs of a word each may be a sentence without its quotes."""
    model, sentence = str(request.model.model), " ".join(request.text)
    if not (os.path.exists(model) or "/" in model):  # its first word is where the model belongs
        raise InputError(
            f'a sentence must be in quotes, after the model: translate MODEL "{model} {sentence}"'
        )
    say(f'note: {len(request.text)} texts are translated; one sentence must be in quotes: "{sentence}"')


def _translate(arguments: argparse.Namespace) -> int:
    request = TranslateRequest.of(arguments)
    check_options(request)
    for text in request.text:
        if Path(text).suffix and os.path.isfile(text):  # false for what cannot be a name
            raise InputError(f"TEXT must be a text, but {text} is a file; give it as --input {text}")
    if len(request.text) > 1 and all(len(text.split()) == 1 for text in request.text):
        _tell_of_words(request)
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
    from transformer_mt.translation.result import Options

    with ExitStack() as files:
        chunks = _chunks(request, files)
        options = Options(
            request.n_best, align=request.align, protect=request.protect, tag=request.tag, retry=request.retry
        )
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
    keep = open_sinks(request, translator, files)
    output, end = _open_output(request, translator, files), _line_end(request)
    bar, quality = _progress(request, done, files), ExpectedQuality(translator.resources.calibration)
    for task in chain([first_task] if first_task else [], work):
        results = translator.stream(task.lines, task.options(options))
        for number, result in enumerate(results, start=task.first):
            for problem in result.problems:
                say(f"line {number}: {problem}")
            output.write(_format(number, result, request).encode() + end)
            output.flush()  # a caller may wait for this line
            quality.add(result)
            if "unchanged" not in result.flags:
                keep(result.source, result.translation)
            bar(1)
    if request.json and (expected := quality.expected):
        say(f"{expected} of these {expected.sentences:,} lines, by their confidence")
    elif request.json and quality.withheld:
        say(quality.withheld)
    if request.output:
        end_record(Path(request.output))


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
    if not request.input and sys.stdin.isatty():
        say("type a sentence and Enter; Ctrl-D ends")
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
    return record_of(request, translator, names, {"the prefixes": request.prefixes})


def _lines_done(request: TranslateRequest, translator: "Translator") -> int:
    """Number of finished lines in the output; an incomplete last line is cut off. Raises InputError if the
    output was written with other settings.
    """
    from transformer_mt.text.lines import cut_to_whole_lines

    assert request.output is not None  # check_options
    output = Path(request.output)
    if output.exists() and output.stat().st_size:
        check_record(output, _facts(request, translator))
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
            begin_record(output, _facts(request, translator))
        return opened
    except OSError as error:
        if output.is_symlink() and not output.exists():
            raise InputError(missing(output)) from None
        raise InputError(f"{output}: cannot be written: {error.strerror}; {advice_on(error)}") from None


def _progress(request: TranslateRequest, done: int, files: ExitStack) -> Any:
    """The update function of a progress bar on stderr. It does nothing if lines are typed or shown there."""
    reads_file = bool(request.input) or not (request.text or sys.stdin is None or sys.stdin.isatty())
    if not reads_file or not sys.stderr.isatty() or (not request.output and sys.stdout.isatty()):
        return lambda lines: None
    from transformer_mt.messages import show_progress
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
    """The line ending of the output: as in the input's first line if a text file is read, else a newline."""
    from transformer_mt.text.lines import open_bytes

    if request.json or not request.input or not os.path.isfile(request.input):
        return b"\n"
    with open_bytes(request.input) as file:
        return b"\r\n" if file.readline().endswith(b"\r\n") else b"\n"


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
