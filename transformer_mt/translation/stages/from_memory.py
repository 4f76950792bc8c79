"""Exact reuse of a memory: the same text is translated in the same way."""

from dataclasses import replace

from transformer_mt.memories.translation_memory import TranslationMemory
from transformer_mt.translation.stages.call import Call
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine

FLAG = "memory"


class FromMemory(Stage):
    """Takes lines, and sentences of lines, from a memory. A line with a prefix is searched for."""

    @classmethod
    def of_call(cls, call: Call) -> "FromMemory | None":
        return None if call.resources.memory is None else cls(call.resources.memory)

    def __init__(self, memory: TranslationMemory) -> None:
        self._memory = memory

    def divide(self, line: SourceLine) -> None:
        if line.prefix:
            return
        if line.before.strip() and self._memory.exact(line.source) is not None:
            # The memory has this text with its bullet: keep the bullet in the segment.
            line.before = line.before[: len(line.before) - len(line.before.lstrip())]
            line.segments = [Segment(line.source.strip(), "")]
        whole = line.source[len(line.before) : len(line.source) - len(line.after)].strip()
        if (known := self._memory.exact(whole)) is not None:
            line.segments = [Segment(whole, "", known=known, flag=FLAG)]
        else:
            line.segments = [self._remembered(segment) for segment in line.segments]

    def _remembered(self, segment: Segment) -> Segment:
        known = self._memory.exact(segment.text)
        return segment if known is None else replace(segment, known=known, flag=FLAG)
