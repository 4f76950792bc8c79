"""Batches of sentence pairs, padded or packed, and the rows that they are made of."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.corpora.corpus import Corpus
from transformer_mt.data.batches.encoded_pairs import Chunk, Column, EncodedPairs
from transformer_mt.data.batches.packing import RowShape, packed_side
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD
from transformer_mt.model.masks import Packing


@dataclass(frozen=True)
class Links:
    """L pairs of a target token and a source token that it stands for."""

    rows: Tensor
    """(L,) sentences, in order."""
    tgt: Tensor
    """(L,) positions in tgt_out."""
    src: Tensor
    """(L,) positions in src."""
    weights: Tensor
    """(L,) float32; the weights of one target token sum to 1."""

    def of_rows(self, start: int, stop: int) -> "Links":
        """The links of sentences `start` to `stop` - 1, which are renumbered from 0."""
        begin, end = torch.searchsorted(self.rows, torch.tensor([start, stop])).tolist()
        kept = self._each(lambda tensor: tensor[begin:end])
        return replace(kept, rows=kept.rows - start)

    def _each(self, move: Callable[[Tensor], Tensor]) -> "Links":
        return Links(move(self.rows), move(self.tgt), move(self.src), move(self.weights))


@dataclass(frozen=True)
class Batch:
    """B sentence pairs, padded to the longest on each side. Masks: True = a real token."""

    src: Tensor
    """(B, S) token ids, EOS last."""
    src_mask: Tensor
    """(B, S) bool."""
    tgt_in: Tensor
    """(B, T) BOS, then token ids."""
    tgt_out: Tensor
    """(B, T) token ids, EOS last, PAD after."""
    real: Tensor | None
    """(num_tokens,) the positions of the real target tokens in tgt_out.flatten(); the loss is computed only
    there. None in packed batches, which all have one size: the loss is computed everywhere, and is 0 at PAD.
    """
    num_tokens: int
    """Number of real target tokens, EOS included; losses are divided by it, and speed is measured in it."""
    links: Links | None = None
    """The links between tokens; None if they are not known."""
    packing: Packing | None = None
    """The sentence that each position of a row belongs to (packing.py); None if each row has one sentence."""

    @property
    def num_positions(self) -> int:
        """Rows x longest side, padding counted."""
        return len(self.src) * max(self.src.size(1), self.tgt_in.size(1))

    def split(self, most: int) -> list["Batch"]:
        """The same sentences in batches of at most `most` positions, or of one sentence."""
        return self._in_pieces(max(1, most // max(self.src.size(1), self.tgt_in.size(1))))

    def parts(self, count: int) -> list["Batch"]:
        """The same sentences in at most `count` batches of about equal size."""
        return self._in_pieces(-(-len(self.src) // count))

    def _in_pieces(self, size: int) -> list["Batch"]:
        """Split the batch into batches of at most `size` rows."""
        if size >= len(self.src):
            return [self]
        if self.packing is not None:
            return self._in_equal_pieces(size)
        columns = (self.src, self.src_mask, self.tgt_in, self.tgt_out)
        parts = zip(*(column.split(size) for column in columns))
        batches = [
            _with_real_positions(src, src_mask, tgt_in, tgt_out) for src, src_mask, tgt_in, tgt_out in parts
        ]
        if (links := self.links) is not None:
            starts = range(0, len(self.src), size)
            batches = [replace(b, links=links.of_rows(i, i + size)) for b, i in zip(batches, starts)]
        return batches if self.num_tokens else [batch.idle() for batch in batches]

    def _in_equal_pieces(self, size: int) -> list["Batch"]:
        """Split into batches of one shape with at most `size` rows; empty rows fill up the last one."""
        count = -(-len(self.src) // size)
        empty = -len(self.src) % count
        padded = self.each(lambda tensor: F.pad(tensor, (0, 0, 0, empty)))
        pieces = [padded.each(partial(_part, number=i, count=count)) for i in range(count)]
        return [replace(piece, num_tokens=int((piece.tgt_out != PAD).sum())) for piece in pieces]

    def idle(self) -> "Batch":
        """The same sentences with nothing to predict, so that they add nothing to the loss."""
        if self.real is None:
            return replace(self, tgt_out=torch.full_like(self.tgt_out, PAD), num_tokens=0)
        links = None if self.links is None else self.links.of_rows(0, 0)
        return replace(self, real=self.real[:0], num_tokens=0, links=links)

    def pinned(self) -> "Batch":
        """In pinned memory, from which a GPU copies asynchronously."""
        return self.each(Tensor.pin_memory)

    def to(self, device: torch.device) -> "Batch":
        """The batch on the device. A GPU copies it from pinned memory, without blocking."""
        if device.type == "cuda":
            return self.pinned().each(lambda tensor: tensor.to(device, non_blocking=True))
        return self.each(lambda tensor: tensor.to(device))

    @property
    def is_real(self) -> Tensor:
        """(B, T) True = a target token, not padding."""
        return self.tgt_out != PAD

    @property
    def tensors(self) -> list[Tensor]:
        """All its tensors, without those of `links`."""
        fields = (self.src, self.src_mask, self.tgt_in, self.tgt_out, self.real)
        own = [tensor for tensor in fields if tensor is not None]
        return [*own, *self.packing.tensors] if self.packing else own

    def each(self, move: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply `move` to each tensor and return the new batch."""
        src, src_mask, tgt_in, tgt_out = map(move, (self.src, self.src_mask, self.tgt_in, self.tgt_out))
        real = None if self.real is None else move(self.real)
        links = None if self.links is None else self.links._each(move)
        packing = None if self.packing is None else Packing(*map(move, self.packing.tensors))
        return Batch(src, src_mask, tgt_in, tgt_out, real, self.num_tokens, links, packing)


def _part(tensor: Tensor, number: int, count: int) -> Tensor:
    """Part `number` of the rows, divided into `count` equal parts."""
    return tensor.chunk(count)[number]


def make_batch(src: Sequence[np.ndarray], tgt: Sequence[np.ndarray]) -> Batch:
    """Pad the pairs of token ids, without BOS and EOS, into a Batch."""
    src_ids = _pad(src, add=EOS, first=False)
    tgt_in, tgt_out = _pad(tgt, add=BOS, first=True), _pad(tgt, add=EOS, first=False)
    return _with_real_positions(src_ids, src_ids != PAD, tgt_in, tgt_out)


def make_packed_batch(src: Column, tgt: Column, row: np.ndarray, shape: RowShape) -> Batch:
    """Pack token ids, without BOS and EOS, into a Batch; `row` is the row of each pair, ascending."""
    src_ids, src_sentences, src_positions, _ = packed_side(src, row, shape.rows, shape.src)
    tgt_out, tgt_sentences, tgt_positions, pieces = packed_side(tgt, row, shape.rows, shape.tgt)
    tgt_in = np.where((tgt_positions == 0) & (tgt_sentences > 0), BOS, PAD)
    tgt_in.flat[pieces + 1] = tgt.values
    arrays = src_ids, src_ids != PAD, tgt_in, tgt_out
    packing = src_sentences, src_positions, tgt_sentences, tgt_positions
    num_tokens = len(tgt.values) + len(tgt.lengths)
    src_tensor, mask, in_tensor, out_tensor = map(torch.from_numpy, arrays)
    of_rows = Packing(*map(torch.from_numpy, packing))
    return Batch(src_tensor, mask, in_tensor, out_tensor, None, num_tokens, None, of_rows)


def make_encoder_batch(read: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> Batch:
    """A padded batch for an encoder-only model: the ids that it reads, and the ids that it predicts at the
    same positions, which are PAD if nothing is predicted there.
    """
    src, targets = _filled(read), _filled(predicted)
    return _with_real_positions(src, src != PAD, src, targets)


def _filled(rows: Sequence[np.ndarray]) -> Tensor:
    """Pad the rows with PAD to the longest one: (B, longest)."""
    padded = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for row, ids in zip(padded, rows):
        row[: len(ids)] = ids
    return torch.from_numpy(padded)


def _with_real_positions(src: Tensor, src_mask: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> Batch:
    real = (tgt_out != PAD).flatten().nonzero()[:, 0]
    return Batch(src, src_mask, tgt_in, tgt_out, real, len(real))


def _pad(rows: Sequence[np.ndarray], add: int, first: bool) -> Tensor:
    """Put the token `add` before (`first`) or after each row, then pad with PAD: (B, longest + 1)."""
    lengths = np.fromiter(map(len, rows), np.int64, count=len(rows))
    padded = np.full((len(rows), 1 + lengths.max()), PAD, np.int64)
    columns, ends = np.arange(padded.shape[1]), lengths[:, None]
    padded[(columns > 0) & (columns <= ends) if first else columns < ends] = np.concatenate(rows)
    padded[np.arange(len(rows)), 0 if first else lengths] = add
    return torch.from_numpy(padded)


Sides = tuple[list[np.ndarray], list[np.ndarray]]
"""Token ids of the sources and of the targets of some rows, without BOS and EOS."""
Lengths = tuple[np.ndarray, np.ndarray]
"""(R,) lengths of the sources and (R,) of the targets, including the EOS that batches add."""


class Rows:
    """Encoded pairs, the same in all epochs. A change (`data/changes`) stands on the rows before it and
    overrides what it changes; all methods are pure functions of the epoch and the rows.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        corpora: Sequence[tuple[int, Corpus]] = (),
        links: EncodedPairs | None = None,
    ) -> None:
        """`corpora` is a list of (number of pairs, corpus), in order. `links` is given if a change needs it:
        for each pair, the source and the target positions of tokens that belong together.
        """
        self.pairs, self.corpora, self.links = pairs, corpora, links

    def lengths(self, epoch: int, part: range | None = None) -> Lengths:
        """The lengths of a part of the data, by default of all."""
        return self.pairs.lengths(0, part), self.pairs.lengths(1, part)

    def part(self, part: range | None) -> range:
        """The rows of a part of the data, by default all."""
        return range(len(self.pairs)) if part is None else part

    def rows(self, epoch: int, rows: np.ndarray) -> Sides:
        return [self.pairs.src(i) for i in rows], [self.pairs.tgt(i) for i in rows]

    def chunks(self, epoch: int, part: range) -> Iterator[Chunk]:
        """The rows of a part, in order."""
        return self.pairs.chunks(part)

    def columns(self, epoch: int, rows: np.ndarray) -> tuple[Column, Column]:
        """Token ids of the sources and of the targets of some rows."""
        return self.pairs.gathered(0, rows), self.pairs.gathered(1, rows)

    def batch(self, epoch: int, rows: np.ndarray) -> Batch:
        return make_batch(*self.rows(epoch, rows))
