"""Translations that were made before."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from transformer_mt.corpora.file import FileCorpus
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
