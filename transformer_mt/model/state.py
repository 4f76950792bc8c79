"""The memory of a decoder between steps, with one operation on it.

Letters: B sentences, W hypotheses of each (its beam), N = B x W rows, H heads, S source length, K head width,
E cache entries: one per hypothesis and step.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from transformer_mt.model.masks import Positions

# Initial capacity in entries. It is doubled as needed; unused capacity makes `select` slower.
_CAPACITY = 16


@dataclass(frozen=True)
class LayerState:
    """Keys and values of one decoder layer, stored once per sentence: those of the positions of all its
    hypotheses, and those of its source. A recurrent layer has its cells in `self_keys`, as (B, 1, capacity,
    D), and no `self_values`.
    """

    self_keys: Tensor
    """(B, H, capacity, K)"""
    self_values: Tensor
    """(B, H, capacity, K)"""
    src_keys: Tensor
    """(B, H, S, K)"""
    src_values: Tensor
    """(B, H, S, K)"""


@dataclass(frozen=True)
class DecoderState:
    """The state of B sentences with W hypotheses each. Immutable apart from its buffers.

    Entries are never moved: `past` marks which of them belong to a hypothesis. So reordering a beam copies a
    few bits and no keys, and its W rows attend together, as W queries to one copy. The states of one search
    share these buffers, so at most one step may be taken from each state.
    """

    layers: tuple[LayerState, ...]
    src_mask: Tensor
    """(B, S), True = a real token."""
    past: Tensor
    """(B, W, capacity), True = may attend to the entry."""
    positions: Tensor
    """(capacity,), the position of each entry in its hypothesis."""
    num_entries: int = 0
    """Entries written so far, of each sentence."""
    length: int = 0
    """Tokens so far, of each hypothesis."""

    @classmethod
    def start(
        cls, src_keys_values: list[tuple[Tensor, Tensor]], src_mask: Tensor, cell: int = 0
    ) -> "DecoderState":
        """The state before the first token, with one hypothesis per sentence. `src_keys_values` holds the
        keys and values of the source for each layer. `cell` is the width of cells of recurrent layers; 0 if
        the layers have self-attention.
        """
        layers = []
        for keys, values in src_keys_values:
            B, H, _, K = keys.shape
            if keys.device.type == "cpu":  # with few queries, bfloat16 products take five times as long
                dtype = torch.promote_types(keys.dtype, torch.float32)
                keys, values = keys.to(dtype), values.to(dtype)
            own_keys, own_values = keys.new_empty(2, B, H, _CAPACITY, K)
            if cell:
                own_keys = keys.new_empty(B, 1, _CAPACITY, cell, dtype=torch.float32)
                own_values = own_keys[..., :0]
            # Contiguous: else each step's products would copy them.
            layers.append(LayerState(own_keys, own_values, keys.contiguous(), values.contiguous()))
        past, positions = (
            src_mask.new_zeros(len(src_mask), 1, _CAPACITY),
            src_mask.new_zeros(_CAPACITY, dtype=torch.int64),
        )
        return cls(tuple(layers), src_mask, past, positions)

    @cached_property
    def src_positions(self) -> Positions:
        """The positions of the newest entries, as queries, and of the source tokens."""
        tokens = torch.arange(self.src_mask.size(1), device=self.src_mask.device)
        return Positions(self.self_positions.queries, tokens, max(self.length, len(tokens)))

    @cached_property
    def self_positions(self) -> Positions:
        """The positions of the newest entries, as queries, and of all entries, as keys."""
        entries = self.positions[: self.num_entries]
        return Positions(entries[-self.width :], entries, self.length)

    @cached_property
    def self_mask(self) -> Tensor | None:
        """(B, 1, W, E), True = may attend to the entry; None if each hypothesis may attend to all entries."""
        is_greedy = self.num_entries == self.length  # one hypothesis a sentence, from the first token on
        return None if is_greedy else self.past[:, None, :, : self.num_entries]

    @cached_property
    def parents(self) -> Tensor:
        """(B, W), the entry before the newest of each hypothesis."""
        before = self.past[:, :, : self.num_entries - self.width]
        order = torch.arange(1, before.size(2) + 1, device=before.device)
        return (before * order).amax(dim=2) - 1

    @property
    def width(self) -> int:
        """W: hypotheses of each sentence."""
        return self.past.size(1)

    def advanced(self) -> "DecoderState":
        """The state one position later: each hypothesis has one more entry, which the layers write next."""
        W, start, end = self.width, self.num_entries, self.num_entries + self.width
        state = self if end <= self.past.size(2) else self._with_capacity(max(2 * self.past.size(2), end))
        state.positions[start:end] = self.length
        state.past[:, :, start:end] = torch.eye(W, dtype=torch.bool, device=state.past.device)
        return replace(state, num_entries=end, length=self.length + 1)

    def select(self, rows: Tensor) -> "DecoderState":
        """The state in which hypothesis w of sentence b continues row `rows[b, w]` of this one.

        Replicates (more columns than before), reorders and drops in one call. All entries of `rows[b]` must
        belong to the same sentence. Sentences may be left out, but their order must be kept.
        """
        past = self.past.flatten(0, 1)[rows]  # (B, W, E)
        if len(rows) == len(self.src_mask):
            return replace(self, past=past)
        kept = rows[:, 0] // self.width
        layers = tuple(
            LayerState(
                *(getattr(layer, name).index_select(0, kept) for name in LayerState.__dataclass_fields__)
            )
            for layer in self.layers
        )
        return replace(self, layers=layers, src_mask=self.src_mask.index_select(0, kept), past=past)

    def _with_capacity(self, capacity: int) -> "DecoderState":
        """A copy with larger buffers."""

        def grown(tensor: Tensor, dim: int) -> Tensor:
            shape = list(tensor.shape)
            shape[dim] = capacity
            larger = tensor.new_empty(shape)
            larger.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
            return larger

        layers = tuple(
            replace(layer, self_keys=grown(layer.self_keys, 2), self_values=grown(layer.self_values, 2))
            for layer in self.layers
        )
        return replace(self, layers=layers, past=grown(self.past, 2), positions=grown(self.positions, 0))
