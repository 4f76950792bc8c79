"""Translations that were made before, read from a file and written as TMX."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape, quoteattr

from transformer_mt.corpora.file import FileCorpus
from transformer_mt.errors import InputError, WorkError
from transformer_mt.text.lines import Pair, read_lines, without_compression


class TranslationMemory:
    """Pairs of texts. Of several translations of one text the last one counts."""

    def __init__(self, pairs: Iterable[Pair], languages: tuple[str, str]) -> None:
        self.languages = languages
        self._targets = {_key(src): tgt.strip() for src, tgt in pairs if src.strip() and tgt.strip()}

    def __len__(self) -> int:
        return len(self._targets)

    def texts(self) -> Iterator[str]:
        """The texts and their translations."""
        return chain.from_iterable(self._targets.items())

    def exact(self, text: str) -> str | None:
        """The translation of this very text, apart from white space; None if it was not translated."""
        return self._targets.get(_key(text))


def _key(text: str) -> str:
    return " ".join(text.split())


def read_memory(file: str | Path, languages: tuple[str, str]) -> TranslationMemory:
    """The pairs of a file: TMX, or any other format of corpora; a table whose first row does not name the
    languages has source and target in its first two columns. InputError names what cannot be read.
    """
    return TranslationMemory(_pairs(file, languages), languages)


def _pairs(file: str | Path, languages: tuple[str, str]) -> Iterable[Pair]:
    corpus = FileCorpus(file=str(file), columns=[1, 2] if _has_no_header(str(file), languages) else None)
    return corpus.read(languages)


def _has_no_header(file: str, languages: tuple[str, str]) -> bool:
    delimiter = {".tsv": "\t", ".csv": ","}.get(Path(without_compression(file)).suffix.lower())
    if delimiter is None:
        return False
    first = next(read_lines(file), "")
    return not {*languages} <= {cell.strip().strip('"') for cell in first.split(delimiter)}


# What XML cannot have; texts may hold it.
_NO_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF])


class TmxWriter:
    """Writes pairs into a file, which has its name when all are written: `with TmxWriter(...) as memory`."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        """InputError if the file cannot be written. `languages` are those of the pairs' sides."""
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
