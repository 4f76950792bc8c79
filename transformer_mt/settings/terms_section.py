"""The YAML's `data.terms`: sources in which the translations of terms follow them."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from transformer_mt.settings.section import Conflict, Location, Probability, Section

TERM, AS, TERM_END = "<term>", "<as>", "</term>"
"""The control tokens around a term and its translation: `<term> source words <as> target words </term>`."""


class TermsConfig(Section):
    """Training for glossaries: writes translations of terms into sources (Dinu et al. 2019)."""

    share: Probability = 0.0
    """Share of the pairs to change in each epoch; 0 turns it off, 0.2 is usual."""
    file: Location[str | None] = Field(None)
    """A glossary (TSV, CSV, TBX): terms that occur on both sides are used. If omitted, words and short
    phrases of the pairs are used, aligned by eflomal (extra `alignment`); the model then learns to obey any
    glossary.
    """

    def conflicts_with(self, config: Any) -> Iterator[Conflict]:
        if not self.share:
            if self.file:
                yield "data.terms.file must be left out with data.terms.share: 0"
            return
        if not (config.tokenizer.shared or config.init_from):
            yield "tokenizer.shared must be true with data.terms.share, but is false"
        if "translation" not in config.data.objectives:
            yield "data.terms.share must be 0 without training corpora of translations"
