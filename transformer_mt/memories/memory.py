"""What was translated before."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.data.corpora.file import FileCorpus
from transformer_mt.memories.index import FuzzyIndex
from transformer_mt.text.compressed import without_compression
from transformer_mt.text.lines import read_lines
from transformer_mt.text.pair import Pair


@dataclass(frozen=True)
class Similar:
    """A unit of a memory that is like a text."""

    source: str
    target: str
    similarity: float
    """From 0 to 1: 1 - edit distance in words / words of the longer text."""


class Memory:
    """Pairs of texts. Of several translations of one text the last one counts."""

    def __init__(self, pairs: Iterable[Pair], languages: tuple[str, str]) -> None:
        self.languages = languages
        units = {_key(src): (src.strip(), tgt.strip()) for src, tgt in pairs if src.strip() and tgt.strip()}
        self._units = list(units.values())
        self._exact = {key: number for number, key in enumerate(units)}
        self._index = FuzzyIndex(source for source, _ in self._units)

    def __len__(self) -> int:
        return len(self._units)

    def exact(self, text: str) -> str | None:
        """The translation of this very text, apart from white space; None if it was not translated."""
        number = self._exact.get(_key(text))
        return None if number is None else self._units[number][1]

    def similar(self, text: str, least: float) -> Similar | None:
        """The most similar other text that was translated; None if none has the `least` similarity."""
        own = self._exact.get(_key(text))
        found = self._index.most_similar(text, least, () if own is None else (own,))
        return Similar(*self._units[found[0]], found[1]) if found else None


def _key(text: str) -> str:
    return " ".join(text.split())


def read_memory(file: str | Path, languages: tuple[str, str]) -> Memory:
    """The pairs of a file: TMX, or any other format of corpora; a table whose first row does not name the
    languages has source and target in its first two columns. InputError names what cannot be read.
    """
    return Memory(_pairs(file, languages), languages)


def check_memory(file: str | Path, languages: tuple[str, str]) -> None:
    """InputError if the file is not there, or its first pair cannot be read."""
    next(iter(_pairs(file, languages)))


def _pairs(file: str | Path, languages: tuple[str, str]) -> Iterable[Pair]:
    corpus = FileCorpus(file=str(file), columns=[1, 2] if _has_no_header(str(file), languages) else None)
    return corpus.read(languages)


def _has_no_header(file: str, languages: tuple[str, str]) -> bool:
    delimiter = {".tsv": "\t", ".csv": ","}.get(Path(without_compression(file)).suffix.lower())
    if delimiter is None:
        return False
    first = next(read_lines(file), "")
    return not {*languages} <= {cell.strip().strip('"') for cell in first.split(delimiter)}
