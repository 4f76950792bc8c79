"""The beginnings of a training other than a run: a model of the Hugging Face hub, or halves of two runs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag

from transformer_mt.settings.section import Conflict, Section, one_of


class PublicModel(Section):
    """A model on the Hugging Face hub, or in a local folder in its layout."""

    huggingface: str = Field(min_length=1)
    """Name on the hub (`Helsinki-NLP/opus-mt-en-de`) or a local folder."""
    revision: str | None = None
    """Commit, tag or branch on the hub that pins the model; by default the newest state."""

    def __str__(self) -> str:
        return self.huggingface


class Halves(Section):
    """Parts of a Transformer that were trained alone (Rothe et al. 2020); a part that is left out begins with
    random weights.
    """

    encoder: str | None = Field(None, min_length=1)
    """A run with model.kind: encoder."""
    decoder: str | None = Field(None, min_length=1)
    """A run with model.kind: decoder."""

    def conflicts(self) -> Iterator[Conflict]:
        if self.encoder is None and self.decoder is None:
            yield "init_from must name an encoder, a decoder or both, but names none"

    @property
    def folders(self) -> dict[str, str]:
        """The run of each part that is given."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        return {part: folder for part, folder in parts.items() if folder is not None}

    def __str__(self) -> str:
        return " and ".join(self.folders.values())


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "a run's folder"
    parts = value if isinstance(value, dict) else {}
    is_halves = isinstance(value, Halves) or bool(parts.keys() & set(Halves.model_fields))
    return Halves.__name__ if is_halves else PublicModel.__name__


_Beginning = Annotated[
    Annotated[str, Field(min_length=1), Tag("a run's folder")]
    | Annotated[PublicModel, Tag(PublicModel.__name__)]
    | Annotated[Halves, Tag(Halves.__name__)],
    Discriminator(_kind),
]
if TYPE_CHECKING:
    Beginning = str | PublicModel | Halves
else:
    Beginning = one_of(_Beginning, "a run's folder, {huggingface: NAME} or {encoder: RUN, decoder: RUN}")
"""The beginnings of a training; a word is the folder of a run."""
