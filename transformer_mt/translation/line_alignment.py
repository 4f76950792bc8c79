"""The alignment of a whole line, put together from those of its units."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.lines import as_read, seen_positions
from transformer_mt.text.sentences import Span, find_words
from transformer_mt.translation.alignment import AlignedSegment, align_segment, identity
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import TranslatedLine, TranslatedUnit


class LineAlignment:
    """One candidate of a line."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        searched: Sequence[TranslatedUnit],
        pairs: Sequence[tuple[Ids, Ids]],
        attentions: Sequence[Sequence[Sequence[float]]],
        stages: Sequence[Stage],
    ) -> None:
        """`searched` are the units an engine searched, with the (source, target) and attention of each."""
        self._stages = stages
        self._of_unit = {}
        for translated, (src, tgt), attention in zip(searched, pairs, attentions):
            unit = translated.unit
            text = unit.segment.searched
            aligned = align_segment(tokenizer, as_read(text), src, tgt, attention, positions=unit.positions)
            places = seen_positions(text)
            words = [(places[begin], places[end - 1] + 1) for begin, end in aligned.source]
            aligned = replace(aligned, source=words)
            self._of_unit[id(translated)] = tokenizer.decode_tgt(tgt), aligned

    def of(self, line: TranslatedLine, source: str, translation: str, rank: int) -> list[AlignedSegment]:
        """The segments of `source` and of its candidate `translation`."""
        segments: list[AlignedSegment] = []
        src = tgt = 0
        if bullets := find_words(line.line.before):
            src, tgt = (max(0, text.find(line.line.before)) for text in (source, translation))
            segments.append(_same(bullets).moved(src, tgt))
            src, tgt = src + len(line.line.before), tgt + len(line.line.before)
        for translated in line.units:
            segment, text = translated.unit.segment.text, translated.candidate(rank).translation
            src = max(src, source.find(segment, src))
            tgt = max(tgt, translation.find(text, tgt))
            segments += [aligned.moved(src, tgt) for aligned in self._segments(translated, text, rank)]
            src, tgt = src + len(segment), tgt + len(text)
        return [_within(aligned, len(translation)) for aligned in segments]

    def _segments(self, translated: TranslatedUnit, translation: str, rank: int) -> Iterator[AlignedSegment]:
        """The aligned segments of one unit and its translation."""
        unit = translated.unit
        if unit.segment.flag is not None:  # the model did not align it: align it as a whole
            yield identity((0, len(unit.segment.text)), (0, len(translation)))
            return
        if unit.is_fixed:
            yield _same(find_words(unit.segment.text))
            return
        if not translated.parts:
            text, aligned = self._of_unit[id(translated)]
            for stage in self._stages:
                aligned = stage.align(unit, text, translation, aligned)
            yield aligned
            return
        src = tgt = 0
        for part in translated.parts:
            if part.line is None:
                tgt = max(tgt, translation.find(part.text, tgt))
                whole = (0, len(part.text))
                words = identity(whole, whole) if part.is_whole else _same(find_words(part.text))
                yield words.moved(src, tgt)
                tgt += len(part.text)
            else:
                inside = self.of(part.line, part.text, translation[tgt:], rank)
                yield from (one.moved(src, tgt) for one in inside)
                tgt += max((end for one in inside for _, end in one.target), default=0)
            src += len(part.text)


def _within(segment: AlignedSegment, length: int) -> AlignedSegment:
    """The segment without target words beyond the translation's end, where the last mark may be missing."""
    kept = [i for i, (_, end) in enumerate(segment.target) if end <= length]
    if len(kept) == len(segment.target):
        return segment
    target = [segment.target[i] for i in kept]
    return replace(segment, target=target, weights=segment.weights[kept], attention=segment.attention[kept])


def _same(words: list[Span]) -> AlignedSegment:
    """Words that stand in the translation as they stand in the source."""
    one = np.eye(len(words), dtype=np.float32)
    return AlignedSegment(words, words, one, one)
