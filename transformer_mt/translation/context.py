"""Sentences searched together with those before them in their document: a sliding window.

The whole window is translated, and what is written after its last separator is the sentence's translation.
So a translation depends on the sources of the window alone, wherever a text is divided into chunks.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config.parts.context import SENTENCE
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.result import Options
from transformer_mt.translation.units import Line, Unit, Window

# Settings that would act on the sentences before, too.
_OF_WHOLE_TRANSLATIONS = ("min_length", "max_length", "no_repeat_ngram", "repetition_penalty")


def reads_windows(settings: DecodeConfig) -> bool:
    """Whether a search with these settings translates sentences in their windows."""
    usual = DecodeConfig()
    return settings.context and all(
        getattr(settings, key) == getattr(usual, key) for key in _OF_WHOLE_TRANSLATIONS
    )


class ContextWindows:
    """The windows of a model that was trained on several sentences at a time."""

    def __init__(self, piece: int, planner: Planner, sentences: int) -> None:
        """`piece` stands between sentences, of which a window has at most `sentences`."""
        self._piece, self.sentences = piece, sentences
        self._max_src_length = planner.max_src_length
        self._max_positions = planner.max_positions or sys.maxsize

    @classmethod
    def of_models(cls, configs: Sequence[Config], planner: Planner) -> "ContextWindows | None":
        """The windows of models that translate together; None unless all read several sentences at a time."""
        sentences = min(config.data.context.sentences for config in configs)
        piece = planner.tokenizer.control_ids.get(SENTENCE)
        return None if piece is None or sentences == 1 else cls(piece, planner, sentences)

    def of_lines(self, lines: Sequence[Line], documents: Sequence[int]) -> list[Line]:
        """The lines, each unit with its window: units before it in its line and in the lines before that one,
        of the same document. `documents` has a number for each line.
        """
        found: list[Line] = []
        for number, line in enumerate(lines):
            first = max(0, number - self.sentences + 1)
            before = [
                unit
                for other in range(first, number)
                if documents[other] == documents[number]
                for unit in lines[other].units
            ]
            units = [self._with_window(unit, [*before, *line.units[:i]]) for i, unit in enumerate(line.units)]
            found.append(replace(line, units=units))
        return found

    def _with_window(self, unit: Unit, before: Sequence[Unit]) -> Unit:
        """The unit with a window of as many units before it as fit; none where nothing does."""
        if unit.is_fixed or unit.prefix:
            return unit
        src, limit, count = unit.src, unit.limit, 0
        searched = [other for other in before if not other.is_fixed]
        for other in reversed(searched[1 - self.sentences :]):
            longer = [*other.src, self._piece, *src]
            if len(longer) >= self._max_src_length or limit + other.limit > self._max_positions:
                break
            src, limit, count = longer, limit + other.limit, count + 1
        return replace(unit, window=Window(src, limit, count)) if count else unit

    def last(self, hypothesis: Hypothesis, num_before: int) -> Ids | None:
        """The pieces of the last sentence, with EOS; None if the sentences before it are not as many as in
        the source.
        """
        tokens = hypothesis.tokens
        places = [i for i, token in enumerate(tokens) if token == self._piece]
        if not num_before:
            return [token for token in tokens if token != self._piece]
        return tokens[places[-1] + 1 :] if len(places) == num_before else None


def part_of(
    lines: Sequence[str], options: Options, part: range, reads_before: int
) -> tuple[Sequence[str], Options]:
    """The lines of `part`, which counts those to translate, after the lines of their document that are read
    before them; and their options.
    """
    start, stop = options.lines_before + part.start, options.lines_before + part.stop
    first, documents = start, options.documents
    while documents and 0 < first < stop and start - first < reads_before:
        if documents[first - 1] != documents[start]:
            break
        first -= 1
    own = options.of_lines(range(first, stop))
    return lines[first:stop], replace(own, lines_before=start - first)
