"""Masks: causal, windows, packed rows. One convention in the whole project: boolean, True = may attend,
broadcastable to (B, H, T, S).

Standard attention takes `causal=True` and needs no matrix; the matrices here are for the variants.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Positions:
    """Positions of T queries and S keys in their sentences."""

    queries: Tensor
    """(T,)"""
    keys: Tensor
    """(S,)"""
    end: int
    """All positions are below it, so a table of positions needs this size."""

    @classmethod
    def of(cls, num_queries: int, num_keys: int, device: torch.device) -> "Positions":
        """Positions of complete sentences: 0, 1, 2 ... In a search they are others."""
        queries, keys = (torch.arange(n, device=device) for n in (num_queries, num_keys))
        return cls(queries, keys, max(num_queries, num_keys))


@dataclass(frozen=True)
class Packing:
    """Several sentences in each row of a batch: for each position, its sentence and its place in it."""

    src_sentences: Tensor
    """(B, S) the sentence of the row, counted from 1; 0 for padding."""
    src_positions: Tensor
    """(B, S) the position in the sentence."""
    tgt_sentences: Tensor
    """(B, T)"""
    tgt_positions: Tensor
    """(B, T)"""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.src_sentences, self.src_positions, self.tgt_sentences, self.tgt_positions


@dataclass(frozen=True)
class Layout:
    """Positions of sentences in the rows of a batch: masks and token positions."""

    encoder: Tensor
    """Keys of the source that a source token may attend to."""
    cross: Tensor
    """Keys of the source that a target token may attend to."""
    decoder: Tensor | None = None
    """(B, 1, T, T) keys of the target that a target token may attend to; None: all up to its own."""
    src_positions: Tensor | int = 0
    """(B, S), or the position of the first token in all rows."""
    tgt_positions: Tensor | int = 0
    """(B, T), or the position of the first token in all rows."""

    @classmethod
    def of(cls, src_mask: Tensor, packing: Packing | None) -> "Layout":
        """The layout of packed rows; without `packing`, of one sentence per row, padded as in `src_mask`."""
        if packing is None:
            return cls(attend_to(src_mask), attend_to(src_mask))
        src, tgt = packing.src_sentences, packing.tgt_sentences
        # tril() makes the mask causal, because the tokens of each sentence are in order within the row.
        decoder = same_sentence(tgt, tgt).tril()
        cross = same_sentence(tgt, src)
        return cls(same_sentence(src, src), cross, decoder, packing.src_positions, packing.tgt_positions)


def same_sentence(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, T) and (B, S) numbers of sentences -> (B, 1, T, S): a query may attend to its own sentence. Padding
    may attend to everything, because each query must have at least one visible key.
    """
    return ((queries[:, :, None] == keys[:, None]) | (queries == 0)[:, :, None])[:, None]


def attend_to(src_mask: Tensor) -> Tensor:
    """(B, S), True = a real token -> (B, 1, 1, S): every query of a sentence may attend to its
    real tokens.
    """
    return src_mask[:, None, None, :]


def causal_mask(positions: Positions) -> Tensor:
    """(T, S): a query may attend to the keys at its own position and before."""
    return positions.keys <= positions.queries[:, None]


def window_mask(positions: Positions, window: int) -> Tensor:
    """(T, S): a query may attend to the keys at most `window` positions away."""
    return (positions.keys - positions.queries[:, None]).abs() <= window
