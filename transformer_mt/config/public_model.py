"""A model of the Hugging Face hub that a training begins from."""

from pydantic import Field

from transformer_mt.config.parts.section import Section


class PublicModel(Section):
    """A model on the Hugging Face hub, or in a local folder in its layout."""

    huggingface: str = Field(min_length=1)
    """Name on the hub (`Helsinki-NLP/opus-mt-en-de`) or a local folder."""
    revision: str | None = None
    """A commit, tag or branch on the hub, so that the model stays what it is; by default its newest state."""

    def __str__(self) -> str:
        return self.huggingface
