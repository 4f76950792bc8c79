"""What a decoder remembers between steps, with one operation on it.

Letters: B sentences, W rows of a sentence (its beam), N = B x W rows, H heads, S source length, t tokens so far, K head width.
"""

from dataclasses import dataclass, replace

from torch import Tensor


@dataclass(frozen=True)
class LayerState:
    """Keys and values of one decoder layer: of the tokens so far, one row a hypothesis; of the source, one a sentence."""

    self_keys: Tensor | None
    """(N, H, t, K), None before the first step."""
    self_values: Tensor | None
    """(N, H, t, K)"""
    src_keys: Tensor
    """(B, H, S, K)"""
    src_values: Tensor
    """(B, H, S, K)"""


@dataclass(frozen=True)
class DecoderState:
    """The state of B sentences with W hypotheses each. A value: steps and selections make new ones.

    What belongs to the source is kept once a sentence however many hypotheses it has: a beam's rows attend to it
    together, as if they were W queries of one sentence.
    """

    layers: tuple[LayerState, ...]
    src_mask: Tensor
    """(B, S), True = a real token."""
    num_rows: int
    length: int = 0
    """Tokens so far."""

    @property
    def rows_per_sentence(self) -> int:
        return self.num_rows // len(self.src_mask)

    def select(self, rows: Tensor) -> "DecoderState":
        """The state in which hypothesis w of sentence b goes on from row `rows[b, w]` of this one.

        Replicates (more columns than before), reorders and drops at once. The rows of one line of `rows` must be of one
        sentence; lines may leave sentences out but keep their order.
        """
        old_width = self.rows_per_sentence
        kept = None if len(rows) == len(self.src_mask) else rows[:, 0] // old_width
        flat = rows.reshape(-1)

        def of_row(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor.index_select(0, flat)

        def of_sentence(tensor: Tensor) -> Tensor:
            return tensor if kept is None else tensor.index_select(0, kept)

        layers = tuple(
            replace(
                layer,
                self_keys=of_row(layer.self_keys),
                self_values=of_row(layer.self_values),
                src_keys=of_sentence(layer.src_keys),
                src_values=of_sentence(layer.src_values),
            )
            for layer in self.layers
        )
        return replace(self, layers=layers, src_mask=of_sentence(self.src_mask), num_rows=len(flat))
