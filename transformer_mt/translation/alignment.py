"""Words of a translation aligned to words of its source, from the model's cross-attention."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.sentences import Span, find_words
from transformer_mt.translation.engines.engine import Ids


@dataclass(frozen=True)
class AlignedSegment:
    """The words of a segment and of its translation, and how much target words attend to source words."""

    source: list[Span]
    """Words, as characters of the line."""
    target: list[Span]
    """Words, as characters of the line's translation."""
    weights: NDArray[np.float32]
    """(target words, source words); a row sums to 1, or to 0 where nothing is known."""
    attention: NDArray[np.float32]
    """The attention that `weights` were made from, of the same shape: the mean over the tokens of a target
    word, and the sum over the tokens of a source word.
    """

    def moved(self, source: int, target: int) -> "AlignedSegment":
        """The segment moved by `source` characters in the line and `target` characters in its translation."""
        return AlignedSegment(
            [(begin + source, end + source) for begin, end in self.source],
            [(begin + target, end + target) for begin, end in self.target],
            self.weights,
            self.attention,
        )

    def links(self) -> Iterator[tuple[Span, Span]]:
        """(source word, target word) that belong together: for each target word the source word with the
        largest weight in its row, and for each source word the target word with the largest in its column.
        """
        if not self.weights.size:
            return
        rows = {(t, int(row.argmax())) for t, row in enumerate(self.weights) if row.any()}
        columns = {(int(column.argmax()), s) for s, column in enumerate(self.weights.T) if column.any()}
        for t, s in sorted(rows | columns):
            yield self.source[s], self.target[t]


def words_between_spaces(text: str) -> list[Span]:
    """The parts of a text between white space."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def align_segment(
    tokenizer: Tokenizer,
    source: str,
    src: Ids,
    tgt: Ids,
    attention: Sequence[Sequence[float]],
    words_of: Callable[[str], list[Span]] = find_words,
    positions: Sequence[Ids] | None = None,
) -> AlignedSegment:
    """Align a segment with its translation. `attention` has, for each target token, its weight on each source
    token; `words_of` divides both texts into words.

    `src` may begin with tags, which are not in `source`, and may have been truncated. If `src` has additional
    tokens, `positions` lists, for each token of the text, the positions in `src` that stand for it.
    """
    _, src_spans = tokenizer.spans_src(source)
    control = {*tokenizer.control_ids.values()}
    tags = next((i for i, piece in enumerate(src) if piece not in control), len(src))
    tgt_spans = tokenizer.spans_tgt(tgt)
    src_words, tgt_words = words_of(source), words_of(tokenizer.decode_tgt(tgt))
    # The attention has fewer columns than the text has tokens if the source was truncated, more with a tag.
    weights = np.zeros((len(tgt_spans), len(src_spans)), np.float32)
    given = np.asarray(attention, np.float32).reshape(len(tgt), len(src))
    given = given[:, tags:] if positions is None else _folded(given, positions)
    weights[:, : given.shape[1]] = given
    of_words = _mean_rows(tgt_words, tgt_spans) @ weights @ _overlaps(src_words, src_spans).T
    return AlignedSegment(src_words, tgt_words, sharpen(of_words), of_words.astype(np.float32))


def _folded(columns: NDArray[np.float32], positions: Sequence[Sequence[int]]) -> NDArray[np.float32]:
    """(T, S) over all source tokens -> (T, text tokens): distributes the attention on each source token over
    the text tokens it represents.
    """
    shares = np.zeros((columns.shape[1], len(positions)), np.float32)
    for piece, of_piece in enumerate(positions):
        shares[of_piece, piece] = 1
    return columns @ (shares / np.maximum(shares.sum(1, keepdims=True), 1))


def sharpen(weights: NDArray[Any]) -> NDArray[np.float32]:
    """Normalise the weights over source words and over target words, and multiply the two, so that what both
    directions agree on remains. Rows sum to 1.
    """
    tiny = np.float32(1e-9)
    rows = weights / np.maximum(weights.sum(1, keepdims=True), tiny)
    columns = weights / np.maximum(weights.sum(0, keepdims=True), tiny)
    both = rows * columns
    return (both / np.maximum(both.sum(1, keepdims=True), tiny)).astype(np.float32)


def pinned(segment: AlignedSegment, source: Span, target: Span) -> AlignedSegment:
    """The segment with the words of these two spans aligned to each other alone."""
    weights = segment.weights.copy()
    src, tgt = ([i for i, (begin, end) in enumerate(words) if begin < to and end > start]
                for words, (start, to) in ((segment.source, source), (segment.target, target)))  # fmt: skip
    weights[tgt] = 0
    weights[:, src] = 0
    weights[np.ix_(tgt, src)] = 1 / max(1, len(src))
    return replace(segment, weights=weights)


def identity(source: Span, target: Span) -> AlignedSegment:
    """A segment in which the whole source span is aligned to the whole target span."""
    one = np.ones((1, 1), np.float32)
    return AlignedSegment([source], [target], one, one)


def _overlaps(words: Sequence[Span], pieces: Sequence[Span]) -> NDArray[np.float32]:
    """(words, tokens): 1 if the token has characters of the word. A token may have characters of several."""
    begins, ends = np.array(pieces, int).reshape(-1, 2).T
    return np.array([(begins < end) & (ends > begin) for begin, end in words], np.float32).reshape(
        len(words), len(pieces)
    )


def _mean_rows(words: Sequence[Span], pieces: Sequence[Span]) -> NDArray[np.float32]:
    overlaps = _overlaps(words, pieces)
    return overlaps / np.maximum(overlaps.sum(1, keepdims=True), 1)
