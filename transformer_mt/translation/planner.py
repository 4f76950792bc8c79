"""The planner: lines divided into units that fit the model."""

import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.term_pieces import PieceTerm, TermPieces, pieces_of_span
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.terms.glossary import Glossary
from transformer_mt.text.edges import edges
from transformer_mt.text.languages import is_natural
from transformer_mt.text.sentences import has_several_sentences
from transformer_mt.translation.capitals import is_in_capitals, to_sentence_case
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.flags import CONTROL
from transformer_mt.translation.protected_text import ProtectedText, has_words, spans_of
from transformer_mt.translation.splitting import LONE_CR, Segment, Splitter
from transformer_mt.translation.units import Line, Unit

if TYPE_CHECKING:
    from transformer_mt.memories.memory import Memory  # NumPy takes time to import


@dataclass(frozen=True)
class _DividedLine:
    """A line in segments, before they are encoded."""

    source: str
    prefix: str
    protected: ProtectedText | None
    before: str
    after: str
    segments: list[tuple[Segment, bool]]
    """Each with True if it has nothing to translate."""


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
        glossary: Glossary | None = None,
        memory: "Memory | None" = None,
    ) -> None:
        """`configs` are those of all models of an ensemble, the first being the one that leads; `direction`
        is the source and the target language.
        """
        self.tokenizer, self.glossary, self.memory = tokenizer, glossary, memory
        self._term_pieces = TermPieces.of(tokenizer)
        self.source_lang, self.target_lang = direction
        self._is_natural = all(map(is_natural, direction))
        # Within one language, capitals may be what the model is to change.
        self._may_lowercase = self._is_natural and len(set(direction)) == 2
        piece = configs[0].data.language_piece(direction)
        self.language_ids = [] if piece is None else [tokenizer.control_id(piece)]
        """The piece before each source, of a model with several languages."""
        prompt = configs[0].data.target_piece(direction)
        self.prompt = [] if prompt is None else [tokenizer.control_id(prompt)]
        """What the decoder is given before it writes."""
        self.max_src_length = min(c.data.max_length for c in configs)
        """Longer segments, in pieces with EOS, are divided."""
        most_positions = min(
            (c.data.max_length for c in configs if c.model.has_max_positions), default=max_positions
        )
        self.max_positions = most_positions and most_positions - len(self.prompt)
        """Most pieces of a side the model has positions for, EOS counted; None if there is no limit."""
        has_tags = len(tokenizer.control_ids) > (len(configs[0].data.targets) if self.language_ids else 0)
        most = self.max_src_length - 1 - len(self.language_ids) - has_tags  # a tag is a piece more
        self.splitter = Splitter(self.source_lang, self.target_lang, most, self._count)

    def lines(
        self,
        sources: Sequence[str],
        prefixes: Sequence[str] | None,
        settings: DecodeConfig,
        protected: Sequence[ProtectedText | None] | None = None,
        tag: str | None = None,
        in_capitals: Sequence[bool] | None = None,
    ) -> list[Line]:
        """The units of each line, their sources after the `tag`. The first unit of a line has its prefix.
        `in_capitals`: whether each line is part of a text in capitals; by default its own letters decide.
        """
        count = len(sources)
        divided = [
            self._divided(*given, settings)
            for given in zip(
                sources, prefixes or [""] * count, protected or [None] * count, in_capitals or [False] * count
            )
        ]
        searched = [
            segment.searched for line in divided for segment, is_fixed in line.segments if not is_fixed
        ]
        encoded = iter(self.encode(searched))
        given_ids = self.tokenizer.encode_tgt(prefixes) if prefixes else [[]] * count
        before = self.ids_before(tag)
        return [self._line(line, encoded, ids, settings, before) for line, ids in zip(divided, given_ids)]

    def _divided(
        self,
        source: str,
        prefix: str,
        protected: ProtectedText | None,
        in_capitals: bool,
        settings: DecodeConfig,
    ) -> _DividedLine:
        before, words, after = self._edges(source, prefix)
        if before.strip() and self.memory is not None and self.memory.exact(source) is not None:
            # The bullet is part of the text that the memory has.
            before, words = before[: len(before) - len(before.lstrip())], source.strip()
        may_stay = self._is_natural and not prefix
        found = self._segments(words, prefix, settings, protected, in_capitals)
        if self.memory is not None and not prefix:
            found = self._remembered(words, found, self.memory)
        segments = [
            (segment, segment.known is not None or (may_stay and not has_words(segment.text, protected)))
            for segment in found
        ]
        return _DividedLine(source, prefix, protected, before, after, segments)

    @staticmethod
    def _remembered(words: str, segments: list[Segment], memory: "Memory") -> list[Segment]:
        """The line as one segment if the memory has it, else its segments with those that the memory has."""
        if (known := memory.exact(words)) is not None:
            return [Segment(words, "", known=known)]
        return [replace(segment, known=memory.exact(segment.text)) for segment in segments]

    def _line(
        self, line: _DividedLine, encoded: Iterator[Ids], prefix: Ids, settings: DecodeConfig, before: Ids
    ) -> Line:
        """The line with its units. `encoded` gives the pieces of each segment that is searched, `before` are
        the control pieces before each.
        """
        if UNK in prefix:
            raise InputError(
                f"a prefix must be written in characters the model knows, but is {line.prefix!r}"
            )
        units: list[Unit] = []
        is_too_long = False
        for segment, is_fixed in line.segments:
            if is_fixed:
                units.append(Unit(segment, [], 0))
                continue
            ids = next(encoded)
            if len(before) + len(ids) < self.max_src_length:
                units += self._units([segment], [ids], settings, before, line.protected)
                continue
            whole = line.protected.find(segment.text) if line.protected else []
            parts = self.splitter.fit(segment.text, whole)
            parts[-1:] = [replace(parts[-1], gap=parts[-1].gap + segment.gap)]
            if segment.lowercased is not None:
                parts = [self._lowercased(part, line.protected) for part in parts]
            units += self._units(
                parts, self.encode([part.searched for part in parts]), settings, before, line.protected
            )
            is_too_long = True
        if units and prefix:  # a given prefix does not count against the limit
            limit = min(units[0].limit + len(prefix), self.max_positions or sys.maxsize)
            units[0] = replace(units[0], prefix=prefix, prefix_text=line.prefix, limit=limit)
        if protected := line.protected:
            units = [
                unit
                if unit.is_fixed or not protected.is_in(unit.segment.text)
                else replace(unit, protected=protected)
                for unit in units
            ]
        return Line(line.source, units, line.before, line.after, is_too_long)

    def encode(self, texts: Sequence[str]) -> list[Ids]:
        """The pieces of source texts; control characters, which no model knows, are read as spaces."""
        return self.tokenizer.encode_src([CONTROL.sub(" ", text) for text in texts])

    def ids_before(self, tag: str | None) -> Ids:
        """The control pieces before each source: the target language where the model needs it, and the tag.
        InputError if the model has no such tag.
        """
        return [*self.language_ids, *([] if tag is None else [self.tokenizer.control_id(tag)])]

    def _edges(self, source: str, prefix: str) -> tuple[str, str, str]:
        """White space and bullets before the words of a line, the words, and white space after them. A prefix
        begins the line.
        """
        if prefix or not self._is_natural:
            return "", source.strip(), ""
        before, words, after = edges(source, self.source_lang)
        return LONE_CR.sub(" ", before), words, LONE_CR.sub(" ", after)

    def _segments(
        self,
        source: str,
        prefix: str,
        settings: DecodeConfig,
        protected: ProtectedText | None,
        in_capitals: bool,
    ) -> list[Segment]:
        """The line's sentences, or the whole line where sentences are not split."""
        # A prefix of several sentences translates more than the first one: the line stays whole.
        if settings.split_sentences is False or (prefix and has_several_sentences(prefix, self.target_lang)):
            segments = [Segment(source, "")] if source else []
        else:
            segments = self.splitter.sentences(source)
            segments = _without_cuts(segments, protected) if protected else segments
        if prefix or not (settings.lowercase_capitals and self._may_lowercase):
            return segments
        is_line_in_capitals = in_capitals or is_in_capitals(source, spans_of(protected, source))
        return [
            self._lowercased(segment, protected)
            if is_line_in_capitals or is_in_capitals(segment.text, spans_of(protected, segment.text))
            else segment
            for segment in segments
        ]

    def _lowercased(self, segment: Segment, protected: ProtectedText | None) -> Segment:
        keep = spans_of(protected, segment.text)
        return replace(segment, lowercased=to_sentence_case(segment.text, self.source_lang, keep))

    def _units(
        self,
        segments: Sequence[Segment],
        encoded: Sequence[Ids],
        settings: DecodeConfig,
        before: Ids,
        protected: ProtectedText | None,
    ) -> list[Unit]:
        """A unit for each segment; one without pieces stays as it is."""
        most = self.max_src_length - 1  # only a single character of more pieces is cut here
        units = [
            Unit(
                segment,
                (before + ids)[:most] if ids else [],
                self.limit(len(ids[:most]), settings),
                prompt=self.prompt,
            )
            for segment, ids in zip(segments, encoded)
        ]
        if self.glossary:
            units = [self._with_terms(unit, self.glossary, protected) for unit in units]
        return units

    def _with_terms(self, unit: Unit, glossary: Glossary, protected: ProtectedText | None) -> Unit:
        """The unit with its terms, apart from those in protected text; in its source, too, if the model has
        learnt to read them and they fit.
        """
        if unit.is_fixed:
            return unit
        text = CONTROL.sub(" ", unit.segment.searched)
        kept = spans_of(protected, text)
        terms = [
            term
            for term in glossary.find(text)
            if not any(term.begin < end and term.end > begin for begin, end in kept)
        ]
        if not terms:
            return unit
        targets = self.tokenizer.encode_tgt([term.targets[0] for term in terms])
        limit = min(unit.limit + sum(map(len, targets)), self.max_positions or sys.maxsize)
        unit = replace(unit, terms=terms, limit=limit)
        if self._term_pieces is None:
            return unit
        ids, spans = self.tokenizer.spans_src(text)
        first = len(unit.src) - len(ids)
        inserted: list[PieceTerm] = []
        for term in terms:
            begin, end = pieces_of_span(spans, term.begin, term.end)
            if begin < end and (not inserted or first + begin >= inserted[-1][1]):
                target = self.tokenizer.encode_src([term.targets[0]])[0]
                inserted.append((first + begin, first + end, target))
        src = self._term_pieces.inserted(unit.src, inserted)
        fits = first >= 0 and len(src) < self.max_src_length
        return replace(unit, src=src) if fits else unit

    def limit(self, src_length: int, settings: DecodeConfig) -> int:
        """Most pieces of a translation, EOS counted: from its own source alone."""
        limit = int(settings.max_length_ratio * src_length) + 11
        limit = min(limit, settings.max_length + 1) if settings.max_length else limit
        limit = max(limit, settings.min_length + 1)
        return min(limit, self.max_positions) if self.max_positions else limit

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.encode_src(texts)]


def _without_cuts(segments: Sequence[Segment], protected: ProtectedText) -> list[Segment]:
    """Neighbouring segments joined where protected text reaches over the boundary between them."""
    spans = protected.find("".join(segment.text + segment.gap for segment in segments))
    joined: list[Segment] = []
    start = 0
    for segment in segments:
        borders = {start - len(joined[-1].gap), start} if joined else ()
        start += len(segment.text + segment.gap)
        # Of spans in order only the last that begins before a border can reach over it.
        last = [bisect_left(spans, (border, 0)) - 1 for border in borders]
        if any(i >= 0 and spans[i][1] > border for i, border in zip(last, borders)):
            before = joined.pop()
            segment = Segment(before.text + before.gap + segment.text, segment.gap)
        joined.append(segment)
    return joined
