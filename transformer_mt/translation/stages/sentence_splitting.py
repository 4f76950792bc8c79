"""Sentence splitting: each sentence of a line is translated by itself."""

from bisect import bisect_left
from collections.abc import Sequence

from transformer_mt.text.sentences import has_several_sentences
from transformer_mt.translation.splitting import Splitter
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine, Spans


class SentenceSplitting(Stage):
    """Divides lines into sentences, but not what must pass unchanged."""

    def __init__(self, splitter: Splitter, target_lang: str) -> None:
        self._splitter, self._target_lang = splitter, target_lang

    def divide(self, line: SourceLine) -> None:
        # A prefix of several sentences covers more than the line's first sentence: do not split the line.
        if line.prefix and has_several_sentences(line.prefix, self._target_lang):
            return
        segments = [part for segment in line.segments for part in self._splitter.sentences(segment.text)]
        if len(segments) > 1:
            spans = line.keep("".join(segment.text + segment.gap for segment in segments))
            segments = _without_cuts(segments, spans)
        line.segments = segments


def _without_cuts(segments: Sequence[Segment], spans: Spans) -> list[Segment]:
    """Neighbouring segments joined where a span reaches over the boundary between them."""
    joined: list[Segment] = []
    start = 0
    for segment in segments:
        borders = {start - len(joined[-1].gap), start} if joined else ()
        start += len(segment.text + segment.gap)
        # The spans are sorted: only the last one that begins before a border can cross it.
        last = [bisect_left(spans, (border, 0)) - 1 for border in borders]
        if any(i >= 0 and spans[i][1] > border for i, border in zip(last, borders)):
            before = joined.pop()
            segment = Segment(before.text + before.gap + segment.text, segment.gap)
        joined.append(segment)
    return joined
