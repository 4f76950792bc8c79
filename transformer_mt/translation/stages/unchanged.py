"""Text without words, such as a number, an address or an emoji: it stays as it is."""

from dataclasses import replace

from transformer_mt.text.literal_text import has_words
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import SourceLine


class Unchanged(Stage):
    """Keeps segments that have nothing to translate. The line of a prefix has the prefix."""

    def divide(self, line: SourceLine) -> None:
        for i, segment in enumerate(line.segments if not line.prefix else ()):
            if segment.known is None and not has_words(segment.text, line.keep):
                line.segments[i] = replace(segment, known=segment.text)
