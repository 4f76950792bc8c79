"""The alignment of a whole line, put together from those of its units."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.words import Span, find_words
from transformer_mt.translation.alignment import AlignedSegment, align_segment, identity
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.flags import CONTROL
from transformer_mt.translation.units import TranslatedLine, TranslatedUnit


class LineAlignment:
    """One candidate of a line."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        searched: Sequence[TranslatedUnit],
        pairs: Sequence[tuple[Ids, Ids]],
        attentions: Sequence[Sequence[Sequence[float]]],
        language: str,
    ) -> None:
        """`searched` are the units an engine searched, with the (source, target) and attention of each;
        `language` is that of the target.
        """
        self._of_unit = {}
        for translated, (src, tgt), attention in zip(searched, pairs, attentions):
            unit = translated.unit
            aligned = align_segment(tokenizer, CONTROL.sub(" ", unit.segment.searched), src, tgt, attention)
            if unit.is_in_capitals:
                # From positions in the translation as it was found to those in capitals: ß becomes SS.
                capitals = unit.in_capitals(tokenizer.decode_tgt(tgt), language)
                starts = [0, *accumulate(map(len, capitals))]
                words = [(starts[begin], starts[end]) for begin, end in aligned.target]
                aligned = replace(aligned, target=words)
            self._of_unit[id(translated)] = aligned

    def of(self, line: TranslatedLine, source: str, translation: str, rank: int) -> list[AlignedSegment]:
        """The segments of `source` and of its candidate `translation`."""
        found: list[AlignedSegment] = []
        src = tgt = 0
        if bullets := find_words(line.line.before):
            src, tgt = (max(0, text.find(line.line.before)) for text in (source, translation))
            found.append(_same(bullets).moved(src, tgt))
            src, tgt = src + len(line.line.before), tgt + len(line.line.before)
        for translated in line.units:
            segment, text = translated.unit.segment.text, translated.candidate(rank).translation
            src = max(src, source.find(segment, src))
            tgt = max(tgt, translation.find(text, tgt))
            found += [aligned.moved(src, tgt) for aligned in self._segments(translated, text, rank)]
            src, tgt = src + len(segment), tgt + len(text)
        return [_within(aligned, len(translation)) for aligned in found]

    def _segments(self, translated: TranslatedUnit, translation: str, rank: int) -> Iterator[AlignedSegment]:
        """The aligned segments of one unit and its translation."""
        unit = translated.unit
        if unit.segment.known is not None:  # the model has not aligned it: the whole to the whole
            yield identity((0, len(unit.segment.text)), (0, len(translation)))
            return
        if unit.is_fixed:
            yield _same(find_words(unit.segment.text))
            return
        if not translated.spans:
            found = self._of_unit[id(translated)]
            if unit.protected:
                for source, target in _pairs(unit.protected.find(unit.segment.text), unit.segment.text,
                                             unit.protected.find(translation), translation):  # fmt: skip
                    found = _pinned(found, source, target)
            yield found
            return
        src = tgt = 0
        for span, line in translated.spans:
            if line is None:
                tgt = max(tgt, translation.find(span.text, tgt))
                whole = (0, len(span.text))
                here = identity(whole, whole) if span.protected else _same(find_words(span.text))
                yield here.moved(src, tgt)
                tgt += len(span.text)
            else:
                parts = self.of(line, span.text, translation[tgt:], rank)
                yield from (part.moved(src, tgt) for part in parts)
                tgt += max((end for part in parts for _, end in part.target), default=0)
            src += len(span.text)


def _within(segment: AlignedSegment, length: int) -> AlignedSegment:
    """The segment without target words beyond the translation, whose last mark may be left out at its end."""
    kept = [i for i, (_, end) in enumerate(segment.target) if end <= length]
    if len(kept) == len(segment.target):
        return segment
    target = [segment.target[i] for i in kept]
    return replace(segment, target=target, weights=segment.weights[kept], attention=segment.attention[kept])


def _same(words: list[Span]) -> AlignedSegment:
    """Words that stand in the translation as they stand in the source."""
    one = np.eye(len(words), dtype=np.float32)
    return AlignedSegment(words, words, one, one)


def _pairs(
    sources: Sequence[Span], source: str, targets: Sequence[Span], target: str
) -> Iterator[tuple[Span, Span]]:
    """Each protected text of the source with the one of the target that equals it."""
    remaining = list(targets)
    for begin, end in sources:
        same = next((span for span in remaining if target[slice(*span)] == source[begin:end]), None)
        if same is not None:
            remaining.remove(same)
            yield (begin, end), same


def _pinned(segment: AlignedSegment, source: Span, target: Span) -> AlignedSegment:
    """The segment with the words of these two spans aligned to each other alone."""
    weights = segment.weights.copy()
    src, tgt = ([i for i, (begin, end) in enumerate(words) if begin < to and end > start]
                for words, (start, to) in ((segment.source, source), (segment.target, target)))  # fmt: skip
    weights[tgt] = 0
    weights[:, src] = 0
    weights[np.ix_(tgt, src)] = 1 / max(1, len(src))
    return replace(segment, weights=weights)
