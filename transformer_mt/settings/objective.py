"""The objective of a training corpus: to translate, or one of the pretraining tasks on plain text."""

from typing import Literal

Objective = Literal["translation", "denoise", "masked_lm", "causal_lm", "classification"]

OF_TEXT = ("denoise", "masked_lm", "causal_lm")
"""Objectives of plain text: the text itself is what is predicted."""

BY_KIND = {
    "transformer": ("translation", "denoise", "causal_lm"),
    "recurrent": ("translation", "denoise", "causal_lm"),
    "encoder": ("masked_lm", "classification"),
    "decoder": ("causal_lm",),
}
"""The objectives that each `model.kind` can be trained for."""

MASK = "<mask>"
"""The control token that the model reads instead of hidden tokens."""


def label_piece(label: str) -> str:
    """The control token that stands for a label of a classification."""
    return f"__label__{label}"
