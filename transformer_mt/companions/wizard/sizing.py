"""Model sizes for amounts of data: the rules behind `transformer-mt new`.

For up to 30,000 pairs they are measured (docs/measurements/sizing.md, docs/measurements/experiments.md).
Beyond they follow the literature: the paper's base model and its dropout (Vaswani et al. 2017, table 3) for
millions of pairs; vocabularies of 16,000 to 32,000 pieces there (Ding et al. 2019; Gowda and May 2020);
BPE-dropout for small corpora only (Provilkov et al. 2020), and only in long trainings.
"""

from dataclasses import dataclass, replace
from math import log


@dataclass(frozen=True)
class Size:
    """A config for some amount of data."""

    pairs: int
    """The amount it is for: that with the nearest logarithm is taken."""
    vocab_size: int
    d_model: int
    layers: int
    dropout: float
    bpe_dropout: float
    learning_rate: float
    epochs: float
    batch_tokens: int = 4096
    position: str = "rotary"
    shallow_decoder: bool = False
    """The decoder has one layer, instead of as many as the encoder."""

    @property
    def d_ff(self) -> int:
        return 4 * self.d_model

    @property
    def num_heads(self) -> int:
        return self.d_model // 64


SIZES = [
    Size(10_000, 8000, 256, 3, 0.3, 0.1, 0.006, 40),
    Size(30_000, 8000, 256, 3, 0.2, 0.1, 0.006, 20),
    Size(130_000, 8000, 256, 3, 0.1, 0.0, 0.006, 15),
    Size(500_000, 16_000, 512, 4, 0.1, 0.0, 0.003, 12, 8192),
    Size(4_500_000, 32_000, 512, 6, 0.1, 0.0, 0.002, 8, 25_000),
]
"""From small to large."""

_DECAY, _MOST_DECAY = 6.0, 2.0


def weight_decay(learning_rate: float, updates: int) -> float:
    """The weight decay for a training of so many updates: what counts is its product with the learning rate
    and the updates (Wang and Aitchison 2024; measured in docs/measurements/sizing.md).
    """
    return float(f"{min(_MOST_DECAY, _DECAY / (learning_rate * updates)):.2g}")


UNSEGMENTED_LEAST = 8000
"""Pieces of the least vocabulary with a language such as Chinese, whose characters alone are thousands."""


def size_for(pairs: int) -> Size:
    """The size for this number of pairs."""
    return min(SIZES, key=lambda size: abs(log(size.pairs / max(1, pairs))))


PURPOSES = ("any", "ctranslate2", "huggingface", "browser")
"""The exports that a model may be for."""

_BROWSER_WIDTH = 256


def suited(size: Size, purpose: str) -> Size:
    """The size for an export. Only sinusoidal positions fit all exports. A browser must load the model and
    run it on a phone: it is narrow, and its decoder, which runs once per token, has one layer.
    """
    if purpose in ("any", "huggingface"):
        return replace(size, position="sinusoidal")
    if purpose == "browser":
        width = min(size.d_model, _BROWSER_WIDTH)
        narrow = max((s for s in SIZES if s.d_model <= width), key=lambda s: min(s.pairs, size.pairs))
        return replace(narrow, pairs=size.pairs, epochs=size.epochs, shallow_decoder=True)
    return size


_FEW_EPOCHS = 18


def shortened(size: Size, epochs: float) -> Size:
    """The size for a training of this many epochs: in few of them nothing overfits, and what prevents it
    costs up to three BLEU.
    """
    if epochs >= _FEW_EPOCHS:
        return size
    return replace(size, bpe_dropout=0.0, dropout=min(size.dropout, 0.1))


def smaller(size: Size) -> list[Size]:
    """The sizes below this one, from large to small."""
    return [
        replace(other, position=size.position, shallow_decoder=size.shallow_decoder)
        for other in reversed(SIZES)
        if other.pairs < size.pairs and other.d_model <= size.d_model
    ]
