"""White space and bullets around the words of a line: they stay, and are no part of a sentence."""

from transformer_mt.text.edges import edges
from transformer_mt.translation.splitting import LONE_CR
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine


class Edges(Stage):
    """Takes them off a line. A line with a prefix begins with it instead."""

    def __init__(self, source_lang: str) -> None:
        self._source_lang = source_lang

    def divide(self, line: SourceLine) -> None:
        if line.prefix:
            return
        before, words, after = edges(line.source, self._source_lang)
        line.before, line.after = LONE_CR.sub(" ", before), LONE_CR.sub(" ", after)
        line.segments = [Segment(words, "")] if words else []
