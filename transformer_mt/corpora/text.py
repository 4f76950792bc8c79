"""A file of plain text, one text a line: a kind of corpus for pretraining."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import Pair, read_lines, without_compression

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
