"""The YAML's `data.memory`: sources with the translation of a similar one after them."""

from pydantic import Field

from transformer_mt.config.parts.section import Location, Probability, Section

MEMORY = "<memory>"
"""The control piece between a source and the translation of a similar one."""


class MemoryConfig(Section):
    """Training for translation memories (neural fuzzy repair: Bulté and Tezcan 2019)."""

    share: Probability = 0.0
    """Share of the pairs with a similar one that get its translation in an epoch; 0 turns it off, 0.5 is
    usual.
    """
    threshold: float = Field(0.6, ge=0.1, le=1.0)
    """Least similarity: 1 - edit distance in words / words of the longer source."""
    file: Location[str | None] = None
    """The memory: TMX, or any other format of corpora. Without it the training pairs are searched for similar
    ones.
    """
