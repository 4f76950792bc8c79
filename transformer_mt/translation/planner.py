"""Directions of a model, and the planner: lines divided into units that fit the model."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.errors import InputError, Setting
from transformer_mt.text.languages import base_code, has_no_spaces, has_no_word_spaces
from transformer_mt.text.lines import as_read
from transformer_mt.text.sentences import split_sentences
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import Segment, SourceLine, Unit

Direction = tuple[str, str]
"""Source and target language."""


def find_direction(
    directions: Sequence[Direction], target: str | None, source: str | None, usual: Direction
) -> Direction:
    """The source and the target language for a model that was trained on these `directions`. If `target` is
    not given, the `usual` target is taken. If `source` is not given, the `usual` source is taken if the model
    has it with this target, else the first source with this target. `de_AT` becomes `de` if the model has
    only that. InputError for a language the model does not have.
    """
    source = source and _known("from", source, [src for src, _ in directions], "reads")
    target = _known("to", target or usual[1], [tgt for _, tgt in directions], "writes")
    sources = [src for src, tgt in directions if tgt == target] or [usual[0]]
    return source or (usual[0] if usual[0] in sources else sources[0]), target


def can_translate(directions: Sequence[Direction], has_pieces: bool, languages: Direction) -> bool:
    """True if a model of these `directions` can translate a set in these languages. A model with one target
    language and no language tokens also takes other languages, but not its own direction reversed.
    """
    if languages in directions or languages[::-1] in directions:
        return languages in directions
    source, target = map(base_code, languages)
    sources, targets = ({base_code(code) for code in side} for side in zip(*directions))
    if source in sources and target in targets:
        return True
    return len(targets) == 1 and not has_pieces and target not in sources - targets


def name_in(known: Sequence[str], language: str) -> str | None:
    """The model's code for the language: this code, else another code of the same language, else None."""
    same = [code for code in known if code == language]
    same += [code for code in known if base_code(code) == base_code(language)]
    return same[0] if same else None


def _known(key: str, language: str, known: Sequence[str], verb: str) -> str:
    """The language as the model calls it. InputError if it does not have it."""
    name = name_in(known, language)
    if name is None:
        languages = ", ".join(dict.fromkeys(known))
        raise InputError(
            Setting(key), f" must be a language the model {verb} ({languages}), but is {language}"
        )
    return name


Count = Callable[[Sequence[str]], list[int]]
"""The number of tokens of each text."""

# Separators at which a too long sentence is divided, in order of preference. The matched text stays with
# the part before it.
_CLAUSE = re.compile(r"[,;:–—]\s+|[，、；：]")
_WORD = re.compile(r"\s+")
LONE_CR = re.compile(r"\r(?!\n)")  # would break the line of the translation


class Splitter:
    """Divides lines into segments and joins their translations with the spacing of the line."""

    def __init__(self, source_lang: str, target_lang: str, max_pieces: int, count: Count) -> None:
        """A segment has at most `max_pieces` tokens, by `count`."""
        self._source_lang = source_lang
        self._source_is_unsegmented = has_no_word_spaces(source_lang)
        self._target_has_spaces = not has_no_spaces(target_lang)
        self._max_pieces, self._count = max_pieces, count

    def sentences(self, line: str) -> list[Segment]:
        """The sentences of the line; an empty list if it is blank. They may be longer than `max_pieces`."""
        return _segments(split_sentences(line.strip(), self._source_lang))

    def fit(self, text: str, whole: Sequence[tuple[int, int]] = ()) -> list[Segment]:
        """The text in segments of at most `max_pieces` tokens: sentences, else clauses, words or single
        characters.

        Sentences stay apart, as in training; parts of a sentence are as long as possible. Nothing is left
        out. Only a single character of more than `max_pieces` tokens is longer. `whole` are the (begin, end)
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
        """`configs` has the config of each model of an ensemble, the leading model first; `direction` is the
        source and the target language.
        """
        self.tokenizer = tokenizer
        self.source_lang, self.target_lang = direction
        piece = configs[0].data.language_piece(direction)
        self.language_ids = [] if piece is None else [tokenizer.control_id(piece)]
        """The token before each source, of a model with several languages."""
        prompt = configs[0].data.target_piece(direction)
        self.prompt = [] if prompt is None else [tokenizer.control_id(prompt)]
        """The tokens that the decoder is given before it writes."""
        self.max_src_length = min(c.data.max_length for c in configs)
        """Longer segments, in tokens with EOS, are divided."""
        # The engine of an export knows how many positions the model has. Only without such a number are the
        # models' configs asked: they load the class of the positions, which imports torch.
        bounded = () if max_positions else [c for c in configs if c.model.has_max_positions]
        most_positions = min((c.data.max_length for c in bounded), default=max_positions)
        self.max_positions = most_positions and most_positions - len(self.prompt)
        """Most tokens of a side the model has positions for, EOS counted; None if there is no limit."""
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
        """The tokens of source texts, after `as_read`."""
        return self.tokenizer.encode_src(list(map(as_read, texts)))

    def ids_before(self, tag: str | None) -> Ids:
        """The control tokens before each source: the target language where the model needs it, and the tag.
        InputError if the model has no such tag.
        """
        return [*self.language_ids, *([] if tag is None else [self.tokenizer.control_id(tag)])]

    def limit(self, src_length: int, settings: DecodeConfig) -> int:
        """Most tokens of a translation, EOS counted: from its own source alone."""
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
