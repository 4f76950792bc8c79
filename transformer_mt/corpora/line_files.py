"""Text files: two files with aligned lines are a corpus of pairs, one file is plain text."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from transformer_mt.corpora.corpus import Corpus, EvaluationSentence, Languages, not_blank
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import Pair, read_lines, without_compression


def _check_target(target: Any) -> Any:
    files = target if isinstance(target, list) else [target]
    if not files or not all(isinstance(file, str) for file in files):
        raise ValueError(
            f"target must be a file, or for a test set a list of files, one per reference, but is {target!r}"
        )
    return target


class FilesCorpus(Corpus):
    """Two line-aligned text files, plain, .gz, .bz2, .xz or .zst."""

    KEYS: ClassVar[tuple[str, ...]] = ("source", "target")
    EXAMPLE: ClassVar[str] = "{source: ..., target: ...}"

    source: str
    """Source sentences, one per line."""
    target: Annotated[str | list[str], BeforeValidator(_check_target)]
    """File of their translations, line by line; for a validation or test set also a list of files,
    one per reference.
    """

    @property
    def targets(self) -> list[str]:
        """The files of translations."""
        return self.target if isinstance(self.target, list) else [self.target]

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.reverse and isinstance(self.target, list):
            yield "a set with several references must not have reverse: a source must be a single text"

    def describe(self) -> str:
        return " + ".join([self.source, *self.targets])

    def _location(self) -> str:
        return f"{self.source} and {' and '.join(self.targets)}"

    def local_files(self) -> list[Path]:
        return [Path(file) for file in (self.source, *self.targets)]

    @property
    def has_several_references(self) -> bool:
        return self.several_references or isinstance(self.target, list)

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        rows = read_aligned([self.source, *self.targets])
        return ((src, tgt) for src, *targets in rows for tgt in targets)

    def sentences(self, languages: Languages) -> Iterator[EvaluationSentence]:
        if len(self.targets) > 1:
            return read_references(self.source, self.targets)
        return super().sentences(languages)


def read_references(source: str, references: Sequence[str]) -> Iterator[EvaluationSentence]:
    """The sentences of line-aligned files. A blank line is no reference where another file has one."""
    for src, *targets in read_aligned([source, *references]):
        yield src, not_blank(targets)


def read_aligned(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """One tuple per line number, with that line of each file. InputError if the files differ in length."""
    readers = [read_lines(file) for file in files]
    for count, lines in enumerate(itertools.zip_longest(*readers)):
        if None in lines:
            counts = [
                count if line is None else count + 1 + sum(1 for _ in reader)
                for line, reader in zip(lines, readers)
            ]
            has = " and ".join(f"{file} has {number:,}" for file, number in zip(files, counts))
            raise InputError(f"the files must have the same number of lines, but {has}")
        yield lines


_OTHER_FORMATS = (".tsv", ".csv", ".jsonl", ".json", ".parquet", ".tmx", ".zip")


class TextCorpus(Corpus):
    """A file of plain text, one text a line: plain, .gz, .bz2, .xz or .zst."""

    KEYS: ClassVar[tuple[str, ...]] = ("text",)
    EXAMPLE: ClassVar[str] = "plain text: {text: ..., language: ..., objective: denoise}"

    text: str
    """The file, one text a line."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if not self.is_text:
            yield f"objective must be one for plain text, such as denoise, with text, but is {self.objective}"
        if Path(without_compression(self.text)).suffix.lower() in _OTHER_FORMATS:
            yield (
                f"text must be a file of lines, but is {self.text}; for a column of text use file "
                "instead, with columns: [NAME]"
            )

    @property
    def has_both_sides(self) -> bool:
        return False

    def describe(self) -> str:
        return self.text

    def local_files(self) -> list[Path]:
        return [Path(self.text)]

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        return ((line, line) for line in read_lines(self.text))
