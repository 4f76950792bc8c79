"""Number and lengths of a config's training pairs, for a plan."""

from dataclasses import dataclass

import numpy as np

from transformer_mt.config import Config
from transformer_mt.data.batches.mixture import Mixture
from transformer_mt.data.changes.build import training_rows
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.resolve import Origin, with_origin
from transformer_mt.training.seen import seen_before
from transformer_mt.training.state.parent import FindParent, Parent, run_in_folder


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


def lengths_of(config: Config, find_parent: FindParent = run_in_folder) -> tuple[Config, Lengths]:
    """Prepare the data as a training does, or find them prepared. Returns also the config with the keys that
    its parent or its vocabulary decides.
    """
    parent = Parent.of(config, find=find_parent)
    origin = Origin(parent=parent.config, parent_tokenizer=parent.folder.tokenizer()) if parent else Origin()
    config, tokenizer = with_origin(config, origin)
    folder = parent.folder if parent else None
    seen = seen_before(config, RunFolder(""), folder, is_resumed=False)
    data = prepare(config, tokenizer, seen.inherited)
    changing = training_rows(config, data.train, data.sizes, data.tokenizer, data.links)
    lengths = changing.lengths(0) if changing else (data.train.src_lengths, data.train.tgt_lengths)
    rows = Mixture(data.sizes, data.weights, config.seed).rows(0)
    src, tgt = lengths if rows is None else (side[rows] for side in lengths)
    vocab_size = max(data.tokenizer.src.vocab_size(), data.tokenizer.tgt.vocab_size())
    return config, Lengths(np.asarray(src), np.asarray(tgt), vocab_size)
