"""The planner: lines divided into units that fit the model."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.text.control_characters import as_read
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.splitting import Splitter
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine, Unit


@dataclass(frozen=True)
class Plan:
    """How the lines of one call become units."""

    stages: Sequence[Stage]
    settings: DecodeConfig
    tag: str | None = None
    """A tag of the training corpora, put before each source."""


class Planner:
    """Divides lines into units that fit the model. A unit depends on its line alone, never on its
    neighbours.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        configs: Sequence[Config],
        max_positions: int | None,
        direction: tuple[str, str],
    ) -> None:
        """`configs` are those of all models of an ensemble, the first being the one that leads; `direction`
        is the source and the target language.
        """
        self.tokenizer = tokenizer
        self.source_lang, self.target_lang = direction
        piece = configs[0].data.language_piece(direction)
        self.language_ids = [] if piece is None else [tokenizer.control_id(piece)]
        """The piece before each source, of a model with several languages."""
        prompt = configs[0].data.target_piece(direction)
        self.prompt = [] if prompt is None else [tokenizer.control_id(prompt)]
        """The pieces that the decoder is given before it writes."""
        self.max_src_length = min(c.data.max_length for c in configs)
        """Longer segments, in pieces with EOS, are divided."""
        most_positions = min(
            (c.data.max_length for c in configs if c.model.has_max_positions), default=max_positions
        )
        self.max_positions = most_positions and most_positions - len(self.prompt)
        """Most pieces of a side the model has positions for, EOS counted; None if there is no limit."""
        has_tags = len(tokenizer.control_ids) > (len(configs[0].data.targets) if self.language_ids else 0)
        most = self.max_src_length - 1 - len(self.language_ids) - has_tags  # a tag is one more token
        self.splitter = Splitter(self.source_lang, self.target_lang, most, self._count)

    def plan_lines(self, sources: Sequence[SourceLine], plan: Plan) -> None:
        """Give each line its units. The first unit of a line has its prefix."""
        for line in sources:
            for stage in plan.stages:
                stage.divide(line)
        segments = (segment for line in sources for segment in line.segments)
        encoded = iter(self.encode([segment.searched for segment in segments if segment.known is None]))
        has_prefixes = any(line.prefix for line in sources)
        prefixes = self.tokenizer.encode_tgt([line.prefix for line in sources]) if has_prefixes else None
        before = self.ids_before(plan.tag)
        for i, line in enumerate(sources):
            self._plan_line(line, encoded, prefixes[i] if prefixes else [], plan, before)

    def _plan_line(
        self, line: SourceLine, encoded: Iterator[Ids], prefix: Ids, plan: Plan, before: Ids
    ) -> None:
        """Add the units of the line. `encoded` yields the token ids of each searched segment; `before` holds
        the control tokens before each source.
        """
        if UNK in prefix:
            raise InputError(
                f"a prefix must be written in characters the model knows, but is {line.prefix!r}"
            )
        units = line.units
        for segment in line.segments:
            if segment.known is not None:
                units.append(Unit(segment, [], 0, line=line))
                continue
            ids = next(encoded)
            if len(before) + len(ids) < self.max_src_length:
                units.append(self._unit(line, segment, ids, plan, before))
                continue
            parts = self.splitter.fit(segment.text, line.keep(segment.text))
            parts[-1:] = [replace(parts[-1], gap=parts[-1].gap + segment.gap)]
            if segment.replacement is not None:
                parts = _with_replacement(parts, segment.replacement)
            for part, ids in zip(parts, self.encode([part.searched for part in parts])):
                units.append(self._unit(line, part, ids, plan, before))
            line.is_too_long = True
        if units and prefix:  # a given prefix does not count against the limit
            if self.max_positions and len(prefix) >= self.max_positions:
                raise InputError(
                    f"a prefix must have fewer than {self.max_positions} tokens for this model, but has "
                    f"{len(prefix)}: {line.prefix[:80]!r}"
                )
            limit = min(units[0].limit + len(prefix), self.max_positions or sys.maxsize)
            units[0] = replace(units[0], prefix=prefix, prefix_text=line.prefix, limit=limit)

    def _unit(self, line: SourceLine, segment: Segment, ids: Ids, plan: Plan, before: Ids) -> Unit:
        """The unit of a segment. A segment without tokens is not translated: its text is copied."""
        most = self.max_src_length - 1  # exceeded only by a single character of more tokens
        src, limit = (before + ids)[:most] if ids else [], self.limit(len(ids[:most]), plan.settings)
        unit = Unit(segment, src, limit, prompt=self.prompt, line=line)
        if unit.is_fixed:
            return unit
        for stage in plan.stages:
            unit = stage.adapt(unit)
        return unit

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The pieces of source texts as they are read."""
        return self.tokenizer.encode_src(list(map(as_read, texts)))

    def ids_before(self, tag: str | None) -> Ids:
        """The control pieces before each source: the target language where the model needs it, and the tag.
        InputError if the model has no such tag.
        """
        return [*self.language_ids, *([] if tag is None else [self.tokenizer.control_id(tag)])]

    def limit(self, src_length: int, settings: DecodeConfig) -> int:
        """Most pieces of a translation, EOS counted: from its own source alone."""
        limit = int(settings.max_length_ratio * src_length) + 11
        limit = min(limit, settings.max_length + 1) if settings.max_length else limit
        limit = max(limit, settings.min_length + 1)
        return min(limit, self.max_positions) if self.max_positions else limit

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.encode_src(texts)]


def _with_replacement(parts: Sequence[Segment], replacement: str) -> list[Segment]:
    """The parts of a segment, each with its slice of `replacement` as the text to search for. The first
    character is the part's own, so a capital letter stays.
    """
    starts = accumulate((len(part.text + part.gap) for part in parts), initial=0)
    texts = (
        part.text[:1] + replacement[start + 1 : start + len(part.text)] for start, part in zip(starts, parts)
    )
    return [replace(part, replacement=text) for part, text in zip(parts, texts)]
