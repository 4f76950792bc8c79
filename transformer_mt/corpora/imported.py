"""The data of a public model: its languages are known, its sentence pairs are not here."""

from collections.abc import Iterator
from itertools import permutations
from typing import ClassVar

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.errors import InputError
from transformer_mt.settings.corpus_keys import Language
from transformer_mt.text.lines import Pair


class ImportedCorpus(Corpus):
    """The corpora of an imported model. The import writes it into the config: do not write it yourself."""

    KEYS: ClassVar[tuple[str, ...]] = ("imported",)
    EXAMPLE: ClassVar[str] = ""  # users do not write this kind

    imported: str
    """The model's name, as given."""
    languages: list[Language] | None = None
    """Languages that it translates between, in all directions."""

    def describe(self) -> str:
        return f"the corpora of {self.imported}"

    def directions(self, languages: Languages) -> list[Languages]:
        if self.is_text:
            return []
        return [self.direction(languages), *permutations(self.languages or (), 2)]

    @property
    def is_public(self) -> bool:
        return True

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.describe()} must be replaced by your own sentence pairs, as they are not stored"
        )
