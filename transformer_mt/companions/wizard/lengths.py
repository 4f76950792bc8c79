"""Number and lengths of a config's training pairs, for a plan."""

from dataclasses import dataclass

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.batching import Mixture
from transformer_mt.training import prepared


@dataclass(frozen=True)
class Lengths:
    """The pairs of an epoch."""

    src: np.ndarray
    """Pieces of each source with end-of-sentence."""
    tgt: np.ndarray
    vocab_size: int
    """Pieces of the larger vocabulary, where there are two."""
    copies: float = 1.0
    """Pairs of the epoch for each pair here, where these are a sample."""


def lengths_of(config: Config) -> tuple[Config, Lengths]:
    """The lengths of the pairs that a training of the config uses, and the config as `prepared` returns
    it.
    """
    config, data = prepared(config)
    mixture = Mixture(data.sizes, data.weights, config.seed)
    uses = sum(size * weight for size, weight in zip(data.sizes, data.weights))
    part, copies = range(len(data.train)), 1.0
    if uses > config.data.window_pairs:
        part = range(min(len(data.train), config.data.window_pairs))
        copies = uses / len(part)
    src, tgt = data.rows(config, mixture).lengths(0, part)
    if copies == 1.0 and (rows := mixture.rows(0)) is not None:
        src, tgt = src[rows], tgt[rows]
    vocab_size = max(data.tokenizer.src.vocab_size(), data.tokenizer.tgt.vocab_size())
    return config, Lengths(np.asarray(src), np.asarray(tgt), vocab_size, copies)
