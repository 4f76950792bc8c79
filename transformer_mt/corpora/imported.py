"""The data of a public model: its languages are known, its sentence pairs are not here."""

from collections.abc import Iterator
from itertools import permutations
from typing import ClassVar

from transformer_mt.corpora.kind import Corpus, Languages
from transformer_mt.errors import InputError
from transformer_mt.settings.language import Language
from transformer_mt.text.pair import Pair


class ImportedCorpus(Corpus):
    """The corpora of an imported model, which stand in its config alone."""

    KEYS: ClassVar[tuple[str, ...]] = ("imported",)
    EXAMPLE: ClassVar[str] = ""  # nobody writes one

    imported: str
    """The model, as it was named."""
    languages: list[Language] | None = None
    """Languages each of which it translates into each other one."""

    def describe(self) -> str:
        return f"the corpora of {self.imported}"

    def directions(self, languages: Languages) -> list[Languages]:
        return [self.direction(languages), *permutations(self.languages or (), 2)]

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.describe()} must be replaced by sentence pairs of your own, as they are not here"
        )
