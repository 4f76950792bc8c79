"""What every reader of another software's models gives: the parts of a run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_mt.data.vocabulary.tokenizer import Tokenizer


@dataclass(frozen=True)
class ForeignModel:
    """A model as it is to stand in a run's folder."""

    architecture: str
    """What it is called there."""
    model: dict[str, Any]
    """Keys of `model`."""
    decode: dict[str, Any]
    """Keys of `decode`."""
    max_length: int
    tokenizer: Tokenizer
    weights: dict[str, Tensor]
    """By our names, in float32."""
    source_lang: str | None
    target_langs: list[str]
    """Empty where nothing says it."""
    has_language_pieces: bool = False
    """Whether a piece before each source asks for the target language."""
    papers: list[Path] = field(default_factory=list)
    """Its card and its licence."""
