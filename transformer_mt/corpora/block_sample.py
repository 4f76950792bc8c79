"""Samples of a stream of pairs, in memory that does not grow with it."""

from dataclasses import dataclass

from transformer_mt.text.pair import Pair


@dataclass(frozen=True)
class Block:
    """Consecutive pairs."""

    start: int
    """Row of the first."""
    pairs: list[Pair]


class BlockSample:
    """Blocks of consecutive pairs, evenly spaced over the stream."""

    def __init__(self, size: int = 32, most: int = 2000) -> None:
        """Blocks of `size` pairs, at most `most` of them at the end."""
        self._size, self._most = size, most
        self._stride = 1
        self._number = 0
        self._open: list[Pair] = []
        self._blocks: list[Block] = []

    def add(self, row: int, pair: Pair) -> None:
        """The next pair; rows count from 0."""
        if row % self._size == 0:
            self._close()
            self._number = row // self._size
        if self._number % self._stride == 0:
            self._open.append(pair)

    def _close(self) -> None:
        if self._open:
            self._blocks.append(Block(self._number * self._size, self._open))
            self._open = []
        if len(self._blocks) > self._most:
            del self._blocks[1::2]
            self._stride *= 2

    def blocks(self) -> list[Block]:
        """The blocks so far; the last one may be shorter."""
        return [*self._blocks, Block(self._number * self._size, self._open)] if self._open else self._blocks

    @property
    def stride(self) -> int:
        """One block in this many is in the sample."""
        return self._stride
