"""Pairs that `transformer-mt prepare` wrote elsewhere: cleaned and encoded, with their vocabulary."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.corpora.corpus import Corpus, Languages
from transformer_mt.corpora.remote import facts_of, is_url
from transformer_mt.errors import InputError
from transformer_mt.settings.section import Conflict
from transformer_mt.text.lines import Pair


class ShardsCorpus(Corpus):
    """Prepared training pairs, with their vocabulary."""

    shards: str
    """The folder or URL that `transformer-mt prepare` printed."""

    def conflicts(self) -> Iterator[Conflict]:
        yield from super().conflicts()
        if self.tag or self.filter or self.reverse or self.objective != "translation":
            yield "shards must be without tag, filter, reverse and objective: they are prepared"

    def describe(self) -> str:
        return self.shards

    @property
    def is_remote(self) -> bool:
        return is_url(self.shards)

    @property
    def has_vocabulary(self) -> bool:
        return True

    def local_files(self) -> list[Path]:
        return [] if self.is_remote else [Path(self.shards) / "facts.json"]

    def identity(self) -> dict[str, Any]:
        facts = super().identity()
        return facts | {"url": facts_of(f"{self.shards}/facts.json")} if self.is_remote else facts

    def stored_pairs(self, languages: Languages) -> Iterator[Pair]:
        raise InputError(
            f"{self.shards}: must be the only training corpus, and its texts are not there: it is encoded"
        )
