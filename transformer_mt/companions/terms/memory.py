"""Translation memories: the same text gets the same translation again; new ones are written as TMX."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from transformer_mt.errors import InputError, WorkError
from transformer_mt.text.lines import Pair, read_lines, without_compression
from transformer_mt.translation.stages.call import Call, Resource
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine

if TYPE_CHECKING:
    from transformer_mt.cli.translate import TranslateRequest


class TranslationMemory(Resource):
    """Pairs of texts. If a text has several translations, the last one is used."""

    help = "earlier translations (.tmx, .tsv, ...): the same text gets the same translation again"
    before = "unchanged"

    def __init__(self, pairs: Iterable[Pair], languages: tuple[str, str]) -> None:
        self.languages = languages
        self._targets = {_key(src): tgt.strip() for src, tgt in pairs if src.strip() and tgt.strip()}

    def __len__(self) -> int:
        return len(self._targets)

    @classmethod
    def read(cls, file: str | Path, languages: tuple[str, str]) -> "TranslationMemory":
        return read_memory(file, languages)

    def stage(self, call: Call) -> Stage:
        return FromMemory(self)

    def texts(self) -> Iterator[str]:
        """The texts and their translations."""
        return chain.from_iterable(self._targets.items())

    def exact(self, text: str) -> str | None:
        """The translation of this very text, apart from white space; None if it was not translated."""
        return self._targets.get(_key(text))


def _key(text: str) -> str:
    return " ".join(text.split())


FLAG = "memory"


class FromMemory(Stage):
    """Takes translations of lines, and of sentences in lines, from a memory. A line whose translation has a
    given prefix is left to the search.
    """

    def __init__(self, memory: TranslationMemory) -> None:
        self._memory = memory

    def divide(self, line: SourceLine) -> None:
        if line.prefix:
            return
        if line.before.strip() and self._memory.exact(line.source) is not None:
            # The memory has this text with its bullet: keep the bullet in the segment.
            line.before = line.before[: len(line.before) - len(line.before.lstrip())]
            line.segments = [Segment(line.source.strip(), "")]
        whole = line.source[len(line.before) : len(line.source) - len(line.after)].strip()
        if (known := self._memory.exact(whole)) is not None:
            line.segments = [Segment(whole, "", known=known, flag=FLAG)]
        else:
            line.segments = [self._remembered(segment) for segment in line.segments]

    def _remembered(self, segment: Segment) -> Segment:
        known = self._memory.exact(segment.text)
        return segment if known is None else replace(segment, known=known, flag=FLAG)


def read_memory(file: str | Path, languages: tuple[str, str]) -> TranslationMemory:
    """The pairs of a file: TMX, or any other format of corpora; a table whose first row does not name the
    languages has source and target in its first two columns. InputError names what cannot be read.
    """
    return TranslationMemory(_pairs(file, languages), languages)


def _pairs(file: str | Path, languages: tuple[str, str]) -> Iterable[Pair]:
    from transformer_mt.corpora.file import FileCorpus  # takes time to import

    corpus = FileCorpus(file=str(file), columns=[1, 2] if _has_no_header(str(file), languages) else None)
    return corpus.read(languages)


def _has_no_header(file: str, languages: tuple[str, str]) -> bool:
    delimiter = {".tsv": "\t", ".csv": ","}.get(Path(without_compression(file)).suffix.lower())
    if delimiter is None:
        return False
    first = next(read_lines(file), "")
    return not {*languages} <= {cell.strip().strip('"') for cell in first.split(delimiter)}


# Characters that XML does not allow, but texts may contain.
_NO_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF])


class TmxWriter:
    """Writes pairs into a file that gets its name when it is complete: `with TmxWriter(...) as memory`."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        """InputError if the file cannot be written. `languages` are the source and the target language."""
        self._path, self._part = path, path.with_name(f".{path.name}.part")
        self._languages = [quoteattr(code.replace("_", "-")) for code in languages]
        self._seen: set[int] = set()
        try:
            self._file = self._part.open("w", encoding="utf-8", newline="\n")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None
        head = 'segtype="sentence" o-tmf="text" adminlang="en" datatype="plaintext" '
        head += f"srclang={self._languages[0]}"
        self._file.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
            f'<header creationtool="transformer-mt" creationtoolversion="1" {head}/>\n<body>\n'
        )

    def add(self, source: str, target: str) -> None:
        """A pair, unless it was there or a side is empty."""
        key = hash((source, target))
        if key in self._seen or not (source.strip() and target.strip()):
            return
        self._seen.add(key)
        sides = zip(self._languages, (source, target))
        variants = "".join(
            f"<tuv xml:lang={language}><seg>{escape(text.translate(_NO_XML))}</seg></tuv>"
            for language, text in sides
        )
        try:
            self._file.write(f"<tu>{variants}</tu>\n")
        except OSError as error:
            raise WorkError(f"{self._path}: could not be written: {error.strerror}") from None

    def __enter__(self) -> "TmxWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._file.write("</body>\n</tmx>\n")
            self._file.close()
            if kind is None:
                self._part.replace(self._path)
        except OSError as problem:
            raise WorkError(f"{self._path}: could not be written: {problem.strerror}") from None
        finally:
            self._part.unlink(missing_ok=True)


def add_memory_out(parser: argparse.ArgumentParser) -> None:
    """The option of `translate`."""
    parser.add_argument(
        "--memory-out", metavar="FILE.tmx", help="also write the translations to a translation memory"
    )


def memory_out(request: "TranslateRequest") -> "MemoryOut | None":
    """The hook `translation_sink`: the memory that --memory-out names."""
    return MemoryOut(file) if (file := request.others.get("memory_out")) else None


@dataclass(frozen=True)
class MemoryOut:
    """The file of --memory-out."""

    file: str

    def check(self, request: "TranslateRequest") -> None:
        from transformer_mt.cli.model_options import has_ranks

        if not self.file.endswith(".tmx"):
            raise InputError(f"--memory-out must end in .tmx, but is {self.file}")
        if request.resume or has_ranks():
            raise InputError(
                "--memory-out requires one process for all lines: leave out --resume and torchrun"
            )
        for other in (request.input, request.output, *request.model.resources.values()):
            if other and Path(other).resolve() == Path(self.file).resolve():
                raise InputError(f"--memory-out must be a separate file, but {other} is used by this command")

    @contextmanager
    def open(self, languages: tuple[str, str]) -> Iterator[Callable[[str, str], None]]:
        with TmxWriter(Path(self.file), languages) as memory:
            yield memory.add
