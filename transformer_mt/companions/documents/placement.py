"""Place the markup of a source text in its translation: each mark encloses the target words aligned to the
source words it enclosed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from transformer_mt.companions.documents.markup.marked_text import Mark, MarkedText
from transformer_mt.text.languages import LETTER
from transformer_mt.text.sentences import Span
from transformer_mt.translation.result import Candidate

# A target word belongs to a mark if at least this share of it stands for words of the mark.
_SHARE = 0.5
# If no word reaches it, the word with the largest share is taken, if that is at least this much.
_LEAST = 0.2
# The gain of a word that belongs to another mark: so low that no range includes it.
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
        self._literals: dict[str, tuple[list[int], list[int]]] = {}
        """Where literal texts stand in the source, and where they stand in the translation."""
        self.unplaced: list[Mark] = []

    def of(self, marks: Sequence[Mark], words: range, space: Span) -> tuple[Mark, ...]:
        """Place the `marks` of one level within these target words and characters (`space`)."""
        spaces = [mark for mark in marks if mark.space is not None]
        placed = self._of_markup([mark for mark in marks if mark.space is None], words, space)
        return (*placed, *self._of_spaces(spaces, words, space, placed))

    def _of_spaces(
        self, spaces: Sequence[Mark], words: range, space: Span, others: Sequence[Mark]
    ) -> Iterator[Mark]:
        """Line breaks and the like: each replaces a space of the translation, if there is one at its place. A
        mark that is not only white space, such as `\\n`, is also written where there is none, as in Chinese.
        """
        taken = set[int]()
        for mark in spaces if words else ():
            position = self._split(mark.end, words, space)
            # Before the word, or at the end of the words before it.
            for at in (position - 1, position):
                is_free = at not in taken and not any(other.begin <= at < other.end for other in others)
                if space[0] <= at < space[1] and self.target[at] == " " and is_free:
                    taken.add(at)
                    yield replace(mark, begin=at, end=at + 1)
                    break
            else:
                if mark.space and not mark.space.isspace():
                    yield Mark(position, position, mark.space)

    def _of_markup(self, marks: Sequence[Mark], words: range, space: Span) -> tuple[Mark, ...]:
        words_of: dict[int, range] = {}
        spans: dict[int, Span] = {}
        free = np.zeros(len(self.tgt_words), bool)
        free[list(words)] = True
        for i, mark in enumerate(marks):
            if mark.is_literal and (span := self._find_literal(mark, space)):
                words_of[i], spans[i] = range(0), span
                free[(self.tgt_begins < span[1]) & (self.tgt_ends > span[0])] = False
        for i, mark in enumerate(marks):
            span = None if mark.is_literal or mark.is_point else self._within_words(mark, space)
            if span and not any(other[0] < span[1] and span[0] < other[1] for other in spans.values()):
                inside = [w for w in words if self.tgt_begins[w] < span[1] and self.tgt_ends[w] > span[0]]
                words_of[i], spans[i] = range(inside[0], inside[-1] + 1) if inside else range(0), span
                free[inside] = False
        # The longest first: the short ones are then placed next to them, not in the middle of them.
        for i in sorted(range(len(marks)), key=lambda i: marks[i].begin - marks[i].end):
            mark = marks[i]
            is_around = not (mark.is_point or mark.is_literal) and i not in words_of
            if is_around and (chosen := self._find(mark, free)) is not None:
                words_of[i] = self._with_punctuation(mark, chosen, free) if self._words_of(mark) else chosen
                free[list(words_of[i])] = False
                spans[i] = self._with_spaces(
                    mark, self.tgt_words[words_of[i][0]][0], self.tgt_words[words_of[i][-1]][1], space
                )
        pairs = [i for i, mark in enumerate(marks) if not mark.is_point]
        for i, mark in enumerate(marks):
            if i in words_of:
                continue
            if mark.is_point:
                others = [(marks[j], spans[j]) for j in words_of]
                position = self._position(mark, words, space, others)
                words_of[i], spans[i] = range(0), (position, position)
                continue
            self.unplaced.append(mark)
            if mark.is_literal:
                position = self._split(mark.begin, words, space)
                words_of[i], spans[i] = range(0), (position, position)
            else:
                words_of[i], spans[i] = (words, space) if pairs == [i] else (range(0), (space[1], space[1]))
        return tuple(
            replace(
                mark,
                begin=spans[i][0],
                end=spans[i][1],
                children=self.of(mark.children, words_of[i], spans[i]),
            )
            for i, mark in enumerate(marks)
        )

    def _with_spaces(self, mark: Mark, begin: int, end: int, space: Span) -> Span:
        """The span, extended by the space before or after it if the mark includes one there in the source."""
        before = mark.holds[0] and begin > space[0] and self.target[begin - 1] == " "
        after = mark.holds[1] and end < space[1] and self.target[end] == " "
        return begin - before, end + after

    def _within_words(self, mark: Mark, space: Span) -> Span | None:
        """The characters of a mark that begins or ends within a word that is the same in the translation;
        None for other marks.
        """
        first, last = mark.begin + mark.holds[0], mark.end - mark.holds[1]
        begin, end = self._within_word(first), self._within_word(last)
        if begin is None and end is None:
            return None
        if begin is None and (word := self._word_at(first, self.src_begins)) is not None:
            begin = word[0]
        if end is None and (word := self._word_at(last, self.src_ends)) is not None:
            end = word[1]
        if begin is None or end is None or not space[0] <= begin < end <= space[1]:
            return None
        return self._with_spaces(mark, begin, end, space)

    def _within_word(self, position: int) -> int | None:
        """Map a position within a source word to the translation. None if the position is not within a word,
        or the word is not the same there.
        """
        inside = np.flatnonzero((self.src_begins < position) & (self.src_ends > position))
        if not len(inside):
            return None
        begin, end = self.src_words[inside[0]]
        word = self._translation_of(inside[0])
        if word is None or self.target[slice(*word)].casefold() != self.source[begin:end].casefold():
            return None
        return word[0] + position - begin

    def _word_at(self, position: int, edges: NDArray[np.int_]) -> Span | None:
        """The translation of the source word that begins, or ends, at a position."""
        words = np.flatnonzero(edges == position)
        return self._translation_of(words[0]) if len(words) else None

    def _translation_of(self, src_word: int) -> Span | None:
        """The target word with the largest share of a source word; None if all shares are too small."""
        shares = self._shares(*self.src_words[src_word])
        best = int(shares.argmax()) if len(shares) else -1
        return self.tgt_words[best] if best >= 0 and shares[best] >= _LEAST else None

    def _find(self, mark: Mark, free: NDArray[np.bool_]) -> range | None:
        """The range of free target words with the most words of the mark and the fewest others. None if
        there is none.
        """
        if not self._words_of(mark):
            return self._punctuation(mark, free)
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

    def _punctuation(self, mark: Mark, free: NDArray[np.bool_]) -> range | None:
        """For a mark around punctuation only: the range of free target words with the same punctuation."""
        inside = np.flatnonzero((self.src_begins < mark.end) & (self.src_ends > mark.begin))
        translations = [self._translation_of(word) for word in inside.tolist()]
        if not translations or None in translations:
            return None
        first, last = (
            self.tgt_words.index(word) for word in (translations[0], translations[-1]) if word is not None
        )
        span = range(first, last + 1)
        is_same = [self.target[slice(*self.tgt_words[w])] for w in span] == [
            self.source[slice(*self.src_words[w])] for w in inside
        ]
        return span if is_same and free[list(span)].all() else None

    def _find_literal(self, mark: Mark, space: Span) -> Span | None:
        """Find the text of a literal mark, which is not translated, in the translation. If it occurs there as
        often as in the source, the k-th occurrence belongs to the k-th in the source; otherwise the next free
        one is taken.
        """
        text = self.source[mark.begin : mark.end]
        if text not in self._literals:
            self._literals[text] = (
                list(_occurrences(text, self.source)),
                list(_occurrences(text, self.target)),
            )
        places, free = self._literals[text]
        if len(places) == len(free):
            begin = free[places.index(mark.begin)] if mark.begin in places else -1
        else:
            begin = next((begin for begin in free if space[0] <= begin < space[1]), -1)
            free[:] = [other for other in free if other != begin]
        return (begin, begin + len(text)) if space[0] <= begin and begin + len(text) <= space[1] else None

    def _with_punctuation(self, mark: Mark, chosen: range, free: NDArray[np.bool_]) -> range:
        """The `chosen` words, with the punctuation around them that the mark also encloses in the source."""
        inside = (self.src_begins < mark.end) & (self.src_ends > mark.begin)
        letters = np.flatnonzero(inside & self.src_has_letters)
        words = np.flatnonzero(inside).tolist()
        start, stop = chosen.start, chosen.stop
        for src_word in reversed([word for word in words if word < letters[0]]):
            if start > 0 and self._adjoins(start - 1, start, start - 1, src_word, free):
                start -= 1
        for src_word in [word for word in words if word > letters[-1]]:
            if stop < len(free) and self._adjoins(stop - 1, stop, stop, src_word, free):
                stop += 1
        return range(start, stop)

    def _adjoins(self, left: int, right: int, new: int, src_word: int, free: NDArray[np.bool_]) -> bool:
        """True if the word `new` is free punctuation, and either there is no space between the words `left`
        and `right`, or the punctuation is the same as in the source.
        """
        is_adjacent = self.tgt_ends[left] == self.tgt_begins[right]
        is_same = self.target[slice(*self.tgt_words[new])] == self.source[slice(*self.src_words[src_word])]
        return bool(self.is_punctuation[new] and free[new] and (is_adjacent or is_same))

    def _position(self, mark: Mark, words: range, space: Span, others: Sequence[tuple[Mark, Span]]) -> int:
        """The position in the translation at which a mark without words is placed."""
        position = self._within_word(mark.begin)
        if position is not None and not space[0] <= position <= space[1]:
            position = None
        before = np.flatnonzero(self.src_ends == mark.begin).tolist()
        after = np.flatnonzero(self.src_begins == mark.begin).tolist()
        if position is None and bool(before) != bool(after):  # next to one word only, as a footnote is
            near = self._near((before or after)[0], words)
            if near is not None:
                position = near[1] if before else near[0]
        if position is None:
            position = self._split(mark.begin, words, space)
        for other, (begin, end) in others:
            if begin < position < end:
                return begin if mark.begin <= other.begin else end
        return position

    def _near(self, src_word: int, words: range) -> Span | None:
        """The characters of the translation that stand for a source word. For punctuation, None unless it is
        the same in the translation.
        """
        if self.src_has_letters[src_word]:
            free = np.zeros(len(self.tgt_words), bool)
            free[list(words)] = True
            indices = self._find(Mark(*self.src_words[src_word], opening=""), free)
            return (self.tgt_words[indices[0]][0], self.tgt_words[indices[-1]][1]) if indices else None
        translation = self._translation_of(src_word)
        if (
            translation is None
            or self.target[slice(*translation)] != self.source[slice(*self.src_words[src_word])]
        ):
            return None
        inside = words and self.tgt_words[words[0]][0] <= translation[0] < self.tgt_words[words[-1]][1]
        return translation if inside else None

    def _split(self, at: int, words: range, space: Span) -> int:
        """The position in the translation that best separates the words for the source's characters before
        `at` (to its left) from the words for its other characters (to its right).
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


def _occurrences(literal: str, text: str) -> Iterator[int]:
    """The positions at which `literal` occurs in `text` as a word of its own, not as part of another word."""
    begin = text.find(literal)
    while begin >= 0:
        end = begin + len(literal)
        if not any(map(LETTER.fullmatch, (text[max(0, begin - 1) : begin], text[end : end + 1]))):
            yield begin
        begin = text.find(literal, end)
