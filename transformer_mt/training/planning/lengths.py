"""Number and lengths of a config's training pairs, for a plan."""

from dataclasses import dataclass

import numpy as np

from transformer_mt.config import Config
from transformer_mt.config.resolve import Known
from transformer_mt.data.batches.mixture import Mixture
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.given_tokenizer import settle
from transformer_mt.runs.folder import RunFolder
from transformer_mt.training.record_seen import seen_before
from transformer_mt.training.state.parent import Parent


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


def prepared(config: Config) -> tuple[Config, PreparedData]:
    """Prepare the data as a training does, or find them prepared. Returns also the config with the keys that
    its parent or its vocabulary decides.
    """
    parent = Parent.of(config)
    known = Known(parent=parent.config if parent else None)
    _, config, tokenizer = settle(config, known, parent=parent.folder.tokenizer() if parent else None)
    folder = parent.folder if parent else None
    seen = seen_before(config, RunFolder(""), folder, is_resumed=False)
    return config, prepare(config, tokenizer, seen.inherited)


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
