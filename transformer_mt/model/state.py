"""What a decoder remembers between steps, with one operation on it.

Letters: B sentences, W hypotheses of each (its beam), N = B x W rows, H heads, S source length, K head width,
E entries: a position of a hypothesis that was ever stepped through.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

# Entries there is room for at first: greedy search of most sentences, and a beam's first dozen positions.
_ROOM = 64


@dataclass(frozen=True)
class LayerState:
    """Keys and values of one decoder layer, one copy a sentence: of all its hypotheses' positions, and of the source."""

    self_keys: Tensor
    """(B, H, room for entries, K)"""
    self_values: Tensor
    """(B, H, room for entries, K)"""
    src_keys: Tensor
    """(B, H, S, K)"""
    src_values: Tensor
    """(B, H, S, K)"""


@dataclass(frozen=True)
class DecoderState:
    """The state of B sentences with W hypotheses each. A value: steps and selections make new ones.

    Whatever a sentence's hypotheses ever stepped through stays where it was written; `past` says which entries are a
    hypothesis's own. So reordering a beam moves a few bits and no keys, and its W rows attend together, as W queries to
    one copy. The room for entries is shared by the states of one search, so at most one step is taken from each.
    """

    layers: tuple[LayerState, ...]
    src_mask: Tensor
    """(B, S), True = a real token."""
    past: Tensor
    """(B, W, room for entries), True = may attend to the entry."""
    places: Tensor
    """(room for entries,), the position each entry stands at."""
    num_entries: int = 0
    """Entries written so far, of each sentence."""
    length: int = 0
    """Tokens so far, of each hypothesis."""

    @classmethod
    def start(cls, src_keys_values: list[tuple[Tensor, Tensor]], src_mask: Tensor) -> "DecoderState":
        """The state before the first token, one hypothesis a sentence; keys and values of the source for each layer."""
        layers = []
        for keys, values in src_keys_values:
            B, H, _, K = keys.shape
            layers.append(LayerState(keys.new_empty(B, H, _ROOM, K), keys.new_empty(B, H, _ROOM, K), keys, values))
        past, places = src_mask.new_zeros(len(src_mask), 1, _ROOM), src_mask.new_zeros(_ROOM, dtype=torch.int64)
        return cls(tuple(layers), src_mask, past, places)

    @property
    def src_places(self) -> Tensor:
        """(S,), the position each source token stands at."""
        return torch.arange(self.src_mask.size(1), device=self.src_mask.device)

    @property
    def width(self) -> int:
        """W: hypotheses of each sentence."""
        return self.past.size(1)

    def stepped(self) -> "DecoderState":
        """The state one position on: each hypothesis has an entry more, which the layers are about to write."""
        W, start, end = self.width, self.num_entries, self.num_entries + self.width
        state = self if end <= self.past.size(2) else self._with_room(max(2 * self.past.size(2), end))
        state.places[start:end] = self.length
        state.past[:, :, start:end] = torch.eye(W, dtype=torch.bool, device=state.past.device)
        return replace(state, num_entries=end, length=self.length + 1)

    def select(self, rows: Tensor) -> "DecoderState":
        """The state in which hypothesis w of sentence b goes on from row `rows[b, w]` of this one.

        Replicates (more columns than before), reorders and drops at once. The rows of one line of `rows` must be of one
        sentence; lines may leave sentences out but keep their order.
        """
        past = self.past.flatten(0, 1)[rows]  # (B, W, E)
        if len(rows) == len(self.src_mask):
            return replace(self, past=past)
        kept = rows[:, 0] // self.width
        layers = tuple(
            LayerState(*(getattr(layer, name).index_select(0, kept) for name in LayerState.__dataclass_fields__))
            for layer in self.layers
        )
        return replace(self, layers=layers, src_mask=self.src_mask.index_select(0, kept), past=past)

    def _with_room(self, room: int) -> "DecoderState":
        """The same with room for so many entries."""

        def grown(tensor: Tensor, dim: int) -> Tensor:
            shape = list(tensor.shape)
            shape[dim] = room
            larger = tensor.new_empty(shape)
            larger.narrow(dim, 0, tensor.size(dim)).copy_(tensor)
            return larger

        layers = tuple(
            replace(layer, self_keys=grown(layer.self_keys, 2), self_values=grown(layer.self_values, 2))
            for layer in self.layers
        )
        return replace(self, layers=layers, past=grown(self.past, 2), places=grown(self.places, 0))
