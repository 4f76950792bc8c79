"""The YAML's `data.context`: sentences with those before them in their document."""

from pydantic import Field

from transformer_mt.config.parts.section import Section

SENTENCE = "<sentence>"
"""The control piece between two sentences, on both sides."""


class ContextConfig(Section):
    """Training on several sentences at a time (Tiedemann and Scherrer 2017)."""

    sentences: int = Field(1, ge=1, le=100)
    """Most neighbouring sentences that are trained on, and translated, together; 1 turns it off, 3 is usual.
    """

    @property
    def is_on(self) -> bool:
        return self.sentences > 1
