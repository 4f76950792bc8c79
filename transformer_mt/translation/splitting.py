"""Lines in segments that a model translates in one piece: sentences, and parts of sentences that are too
long.
"""

import re
from collections.abc import Callable, Collection, Sequence

from transformer_mt.text.sentences import split_sentences
from transformer_mt.text.unsegmented import has_no_spaces, has_no_word_spaces
from transformer_mt.translation.units import Segment

Count = Callable[[Sequence[str]], list[int]]
"""The number of pieces of each text."""

# Separators at which a too long sentence is divided, in order of preference. The matched text stays with
# the part before it.
_CLAUSE = re.compile(r"[,;:–—]\s+|[，、；：]")
_WORD = re.compile(r"\s+")
LONE_CR = re.compile(r"\r(?!\n)")  # would break the line of the translation


class Splitter:
    """Divides lines into segments and joins their translations with the spacing of the line."""

    def __init__(self, source_lang: str, target_lang: str, max_pieces: int, count: Count) -> None:
        """A segment has at most `max_pieces` pieces, by `count`."""
        self._source_lang = source_lang
        self._source_is_unsegmented = has_no_word_spaces(source_lang)
        self._target_has_spaces = not has_no_spaces(target_lang)
        self._max_pieces, self._count = max_pieces, count

    def sentences(self, line: str) -> list[Segment]:
        """The sentences of the line; an empty list if it is blank. They may be longer than `max_pieces`."""
        return _segments(split_sentences(line.strip(), self._source_lang))

    def fit(self, text: str, whole: Sequence[tuple[int, int]] = ()) -> list[Segment]:
        """The text in segments of at most `max_pieces` pieces: sentences, else clauses, words or single
        characters.

        Sentences stay apart, as in training; parts of a sentence are as long as possible. Nothing is left
        out. Only a single character of more than `max_pieces` pieces is longer. `whole` are the (begin, end)
        of parts that are divided only where one alone is too long.
        """
        if self._count([text])[0] <= self._max_pieces:
            return [Segment(text, "")]
        inside = {i for begin, end in whole for i in range(begin + 1, end)}
        parts, start = [], 0
        for sentence in _rejoined(split_sentences(text, self._source_lang), inside):
            parts += self._fit(sentence, 0, inside, start)
            start += len(sentence)
        return _segments(parts)

    def join(self, gaps: Sequence[str], translations: Sequence[str]) -> str:
        """The translations of a line's segments, `gaps[i]` being the white space after source segment i."""
        text = ""
        for gap, translation in zip(gaps, translations):
            if translation:
                text += translation + self._target_gap(gap)
        return text.rstrip()

    def _target_gap(self, gap: str) -> str:
        gap = LONE_CR.sub(" ", gap)
        if not self._target_has_spaces:
            return gap.replace(" ", "")
        return " " if not gap and self._source_is_unsegmented else gap

    def _fit(self, text: str, level: int, inside: Collection[int], start: int) -> list[str]:
        """Split the text into parts that fit: at the separators of `level`, or of later levels if necessary,
        but not at the positions in `inside`. The text begins at position `start`.
        """
        if self._count([text.strip()])[0] <= self._max_pieces:
            return [text]
        separators = (_CLAUSE, _WORD)
        if level == len(separators):
            middle = len(text) // 2
            if middle == 0:  # one character: there is nothing smaller
                return [text]
            halves = (text[:middle], start), (text[middle:], start + middle)
            return [part for half, begin in halves for part in self._fit(half, level, inside, begin)]
        parts: list[str] = []
        group: list[str] = []
        size = 0
        pieces = _rejoined(_divided(text, separators[level]), inside, start)
        for piece, length in zip(pieces, self._count([piece.strip() for piece in pieces])):
            if size + length > self._max_pieces:
                parts += self._merged(group)
                group, size = [], 0
            if length > self._max_pieces:
                parts += self._fit(piece, level + 1, inside, start)
            else:
                group.append(piece)
                size += length
            start += len(piece)
        return parts + self._merged(group)

    def _merged(self, group: list[str]) -> list[str]:
        """Neighbouring parts joined into one; into two or more if the joined text does not fit: it can
        have more tokens than its parts together.
        """
        text = "".join(group)
        if len(group) < 2 or self._count([text.strip()])[0] <= self._max_pieces:
            return [text] if group else []
        middle = len(group) // 2
        return self._merged(group[:middle]) + self._merged(group[middle:])


def _segments(parts: Sequence[str]) -> list[Segment]:
    """Texts that follow each other without a gap, as segments; blank ones belong to the gap before them."""
    segments: list[Segment] = []
    for part in parts:
        text = part.strip()
        before, after = (
            (part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]) if text else (part, "")
        )
        if before and segments:
            segments[-1] = Segment(segments[-1].text, segments[-1].gap + before)
        if text:
            segments.append(Segment(text, after))
    return segments


def _rejoined(parts: Sequence[str], inside: Collection[int], start: int = 0) -> list[str]:
    """The parts, joined where the boundary between two neighbours is a position in `inside`. The first part
    begins at position `start`.
    """
    joined: list[str] = []
    end = start
    for part in parts:
        if joined and end in inside:
            joined[-1] += part
        else:
            joined.append(part)
        end += len(part)
    return joined


def _divided(text: str, separator: re.Pattern[str]) -> list[str]:
    """The text, cut after each match."""
    parts, start = [], 0
    for match in separator.finditer(text):
        parts.append(text[start : match.end()])
        start = match.end()
    return [*parts, text[start:]] if start < len(text) else parts
