"""Place the markup of a source text in its translation: each mark encloses the target words aligned to the
source words it enclosed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transformer_mt.documents.marked_text import Mark, MarkedText
from transformer_mt.text.unsegmented import LETTER
from transformer_mt.translation.alignment import Span
from transformer_mt.translation.result import Candidate

# A target word belongs to a mark if at least this share of it stands for words of the mark.
_SHARE = 0.5
# Where no word does, the one with the largest share is taken, but not with less than this.
_LEAST = 0.2
# The gain of a word that another mark has: no range reaches over it.
_NEVER = -1e9


@dataclass(frozen=True)
class Placed:
    """A translation with the markup of its source."""

    text: MarkedText
    unplaced: list[Mark]
    """Marks of the source whose words were not found: they are around the whole text, or at its end."""


def place(source: MarkedText, candidate: Candidate) -> Placed:
    """The markup of `source` in its translation `candidate`, which must be aligned."""
    placement = _Placement(source.text, candidate)
    words = range(len(placement.tgt_words))
    marks = placement.of(source.marks, words, (0, len(candidate.translation)))
    return Placed(replace(source, text=candidate.translation, marks=marks), placement.unplaced)


class _Placement:
    """One text and its translation."""

    def __init__(self, source: str, candidate: Candidate) -> None:
        self.source, self.target, self.segments = source, candidate.translation, candidate.aligned
        self.src_words = [word for segment in self.segments for word in segment.source]
        self.src_begins, self.src_ends = np.array(self.src_words, int).reshape(-1, 2).T
        self.src_has_letters = np.array([_has_letters(source[slice(*word)]) for word in self.src_words], bool)
        self.tgt_words = [word for segment in self.segments for word in segment.target]
        self.is_punctuation = np.array(
            [not _has_letters(self.target[slice(*w)]) for w in self.tgt_words], bool
        )
        """Whether each target word is punctuation."""
        self.tgt_begins, self.tgt_ends = np.array(self.tgt_words, int).reshape(-1, 2).T
        self._literals: set[int] = set()
        """Where literal texts were found, and in `_searched` up to where each was looked for."""
        self._searched: dict[tuple[str, Span], int] = {}
        self.unplaced: list[Mark] = []

    def of(self, marks: Sequence[Mark], words: range, space: Span) -> tuple[Mark, ...]:
        """Marks that stand next to each other, within these target words and characters."""
        found: dict[int, range] = {}
        spans: dict[int, Span] = {}
        free = np.zeros(len(self.tgt_words), bool)
        free[list(words)] = True
        for i, mark in enumerate(marks):
            if mark.is_literal and (span := self._next_literal(self.source[mark.begin : mark.end], space)):
                found[i], spans[i] = range(0), span
                free[(self.tgt_begins < span[1]) & (self.tgt_ends > span[0])] = False
        # The longest first: the short ones are then placed next to them, not in the middle of them.
        for i in sorted(range(len(marks)), key=lambda i: marks[i].begin - marks[i].end):
            mark = marks[i]
            is_around = not (mark.is_point or mark.is_literal)
            if is_around and (chosen := self._find(mark, free)) is not None:
                found[i] = self._with_punctuation(mark, chosen, free)
                free[list(found[i])] = False
                spans[i] = self.tgt_words[found[i][0]][0], self.tgt_words[found[i][-1]][1]
        pairs = [i for i, mark in enumerate(marks) if not mark.is_point]
        for i, mark in enumerate(marks):
            if i in found:
                continue
            if mark.is_point:
                others = [(marks[j], spans[j]) for j in found]
                position = self._position(mark, words, space, others)
                found[i], spans[i] = range(0), (position, position)
                continue
            self.unplaced.append(mark)
            if mark.is_literal:
                position = self._split(mark.begin, words, space)
                found[i], spans[i] = range(0), (position, position)
            else:
                found[i], spans[i] = (words, space) if pairs == [i] else (range(0), (space[1], space[1]))
        return tuple(
            replace(
                mark, begin=spans[i][0], end=spans[i][1], children=self.of(mark.children, found[i], spans[i])
            )
            for i, mark in enumerate(marks)
        )

    def _find(self, mark: Mark, free: NDArray[np.bool_]) -> range | None:
        """The range of free target words with the most words of the mark and the fewest others. None if
        there is none.
        """
        if not self._words_of(mark):
            return None
        shares = self._shares(mark.begin, mark.end)
        counts = free & ~self.is_punctuation
        gains = np.where(counts, shares - _SHARE, np.where(free, 0.0, _NEVER))
        # The range with the largest sum: ends[t] is the sum of all words before t (Kadane's algorithm).
        ends = np.concatenate([[0.0], np.cumsum(gains)])
        lowest = np.minimum.accumulate(ends)[:-1]
        sums = np.where(counts, ends[1:] - lowest, -1.0)
        last = int(sums.argmax()) if len(sums) else 0
        if len(sums) and sums[last] > 0:
            start = int(np.flatnonzero(ends[: last + 1] == lowest[last])[-1])
            return range(start + int(counts[start:].argmax()), last + 1)
        likeliest = int(np.where(counts, shares, -1.0).argmax()) if counts.any() else -1
        return range(likeliest, likeliest + 1) if counts.any() and shares[likeliest] >= _LEAST else None

    def _next_literal(self, text: str, space: Span) -> Span | None:
        """The characters of the next occurrence of a text that stands in the translation as it is."""
        begin = self.target.find(text, max(space[0], self._searched.get((text, space), 0)), space[1])
        while begin in self._literals or (begin >= 0 and self._is_in_word(begin, begin + len(text))):
            begin = self.target.find(text, begin + len(text), space[1])
        if begin < 0:
            return None
        self._literals.add(begin)
        self._searched[text, space] = begin + len(text)
        return begin, begin + len(text)

    def _is_in_word(self, begin: int, end: int) -> bool:
        """Whether letters stand around these characters: a literal `a` is not that within a word."""
        around = self.target[max(0, begin - 1) : begin], self.target[end : end + 1]
        return any(map(LETTER.fullmatch, around))

    def _with_punctuation(self, mark: Mark, chosen: range, free: NDArray[np.bool_]) -> range:
        """With the punctuation around these words that the mark also has in the source."""
        inside = self._words_of(mark)
        before = bool(self.source[mark.begin : inside[0][0]].strip())
        after = bool(self.source[inside[-1][1] : mark.end].strip())
        start, stop = chosen.start, chosen.stop
        while before and start > 0 and self._adjoins(start - 1, start, start - 1, free):
            start -= 1
        while after and stop < len(free) and self._adjoins(stop - 1, stop, stop, free):
            stop += 1
        return range(start, stop)

    def _adjoins(self, left: int, right: int, new: int, free: NDArray[np.bool_]) -> bool:
        """Whether the word `new` is punctuation, free, and without a space between the two."""
        is_adjacent = self.tgt_ends[left] == self.tgt_begins[right]
        return bool(self.is_punctuation[new] and free[new] and is_adjacent)

    def _position(self, mark: Mark, words: range, space: Span, others: Sequence[tuple[Mark, Span]]) -> int:
        """The character of the translation before which a mark without words goes."""
        before = next((self.src_words[i] for i in np.flatnonzero(self.src_ends == mark.begin)), None)
        starting = np.flatnonzero((self.src_begins == mark.begin) & self.src_has_letters)
        after = next((self.src_words[i] for i in starting), None)
        free = np.zeros(len(self.tgt_words), bool)
        free[list(words)] = True
        position = None
        if (before is None) != (after is None):  # next to one word only: that of a footnote, say
            near = self._find(Mark(*(before or after or (0, 0)), opening=""), free)
            if near is not None:
                first, last = self.tgt_words[near[0]], self.tgt_words[near[-1]]
                position = last[1] if before else first[0]
        if position is None:
            position = self._split(mark.begin, words, space)
        for other, (begin, end) in others:
            if begin < position < end:
                return begin if mark.begin <= other.begin else end
        return position

    def _split(self, at: int, words: range, space: Span) -> int:
        """The position with the most of the source's characters before `at` on its left, and the most of the
        others on its right.
        """
        gains = self._shares(0, at) - self._shares(at, len(self.source))
        sums = np.concatenate([[0.0], np.cumsum(gains[words.start : words.stop])])
        best = int(sums.argmax())
        return space[1] if best == len(words) else space[0] if best == 0 else self.tgt_words[words[best]][0]

    def _shares(self, begin: int, end: int) -> NDArray[np.float64]:
        """For each target word, how much of it stands for source words with these characters."""
        inside = (self.src_begins < end) & (self.src_ends > begin)
        parts, start = [np.zeros(0)], 0
        for segment in self.segments:
            stop = start + len(segment.source)
            parts.append(segment.weights[:, inside[start:stop]].sum(1))
            start = stop
        return np.concatenate(parts)

    def _words_of(self, mark: Mark) -> list[Span]:
        """The source words of a mark, without punctuation."""
        inside = (self.src_begins < mark.end) & (self.src_ends > mark.begin) & self.src_has_letters
        return [self.src_words[i] for i in np.flatnonzero(inside)]


def _has_letters(text: str) -> bool:
    return any(map(str.isalnum, text))
