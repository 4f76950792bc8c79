"""Makes translations have the terms of a glossary.

A model that was trained with `data.changes: [terms]` reads the terms in its source. Candidates with all terms
come first. If there are none, further searches write the missing terms.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from transformer_mt.companions.terms.glossary import Glossary, Match
from transformer_mt.config import DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.messages import say_once
from transformer_mt.text.languages import count_unsegmented
from transformer_mt.text.lines import as_read
from transformer_mt.translation.alignment import AlignedSegment, align_segment
from transformer_mt.translation.engines.engine import Ids, Request, Wanted
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.stages.stage import Choice, Numbered, Search, Stage
from transformer_mt.translation.units import TranslatedLine, TranslatedUnit, Unit

_MOST_REPLACED = 4
"""Maximum number of terms in a sentence that are written in place of other words."""


TERM, AS, TERM_END = "<term>", "<as>", "</term>"
"""The control tokens around a term and its translation: `<term> source words <as> target words </term>`."""


TokenTerm = tuple[int, int, Sequence[int]]
"""A term's first token, the one after its last, and the tokens of its translation."""


@dataclass(frozen=True)
class TermTokens:
    """The control tokens of terms, as ids of a vocabulary."""

    term: int
    as_: int
    end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TermTokens | None":
        """None if the vocabulary does not have these tokens."""
        ids = tokenizer.control_ids
        return cls(ids[TERM], ids[AS], ids[TERM_END]) if ids.keys() >= {TERM, AS, TERM_END} else None

    def inserted(self, ids: Sequence[int], terms: Iterable[TokenTerm]) -> list[int]:
        """The source with the terms written into it. `terms` must be in order and not overlap."""
        whole: list[int] = []
        done = 0
        for begin, end, target in terms:
            whole += [*ids[done:begin], self.term, *ids[begin:end], self.as_, *target, self.end]
            done = end
        return [*whole, *ids[done:]]

    def text_positions(self, ids: Sequence[int]) -> list[list[int]]:
        """For each token of the original source, the positions in `ids` that stand for it: its own and,
        inside a term, also the positions of the term's translation.
        """
        positions: list[list[int]] = []
        first: int | None = None
        is_target = False
        for i, token in enumerate(ids):
            if token == self.term:
                first = len(positions)
            elif token == self.as_:
                is_target = True
            elif token == self.end:
                first, is_target = None, False
            elif not is_target:
                positions.append([i])
            elif first is not None:
                for same in positions[first:]:
                    same.append(i)
        return positions


def tokens_of_span(spans: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[int, int]:
    """The range of tokens that overlap the characters from `begin` to before `end`: the first token, and the
    one after the last. `spans` are the character spans of the tokens. (0, 0) if no token overlaps.
    """
    inside = [i for i, (first, last) in enumerate(spans) if last > begin and first < end]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


class Terms(Stage):
    """The terms of one glossary."""

    def __init__(self, glossary: Glossary, planner: Planner, settings: DecodeConfig) -> None:
        self._glossary, self._planner = glossary, planner
        self._tokenizer = planner.tokenizer
        self._tokens = TermTokens.of(planner.tokenizer)
        self._may_force = settings.search == "beam"

    def _terms(self, unit: Unit) -> list[Match]:
        """The terms of the unit, apart from those in protected text."""
        text = as_read(unit.segment.searched)
        kept = unit.line.keep(text)
        return [
            term
            for term in self._glossary.find(text)
            if not any(term.begin < end and term.end > begin for begin, end in kept)
        ]

    def adapt(self, unit: Unit) -> Unit:
        """The unit with room for its terms, and with them in its source if the model has learnt to read them
        and they fit.
        """
        text, terms = as_read(unit.segment.searched), self._terms(unit)
        if not terms:
            return unit
        targets = self._tokenizer.encode_tgt([term.targets[0] for term in terms])
        limit = min(unit.limit + sum(map(len, targets)), self._planner.max_positions or sys.maxsize)
        unit = replace(unit, has_conditions=True, limit=limit)
        if self._tokens is None:
            say_once(
                "note: the model was not trained for glossaries (`data.changes: [terms]`), so words around "
                "an inserted term may not agree with it; compare `evaluate` with and without the glossary"
            )
            return unit
        ids, spans = self._tokenizer.spans_src(text)
        first = len(unit.src) - len(ids)
        if first < 0:  # the source was truncated
            return unit
        inserted: list[TokenTerm] = []
        for term in terms:
            begin, end = tokens_of_span(spans, term.begin, term.end)
            if begin < end and (not inserted or begin >= inserted[-1][1]):
                target = self._tokenizer.encode_src([term.targets[0]])[0]
                inserted.append((begin, end, target))
        written = self._tokens.inserted(ids, inserted)
        if not inserted or first + len(written) >= self._planner.max_src_length:
            return unit
        positions = [[first + i for i in at] for at in self._tokens.text_positions(written)]
        return replace(unit, src=[*unit.src[:first], *written], positions=positions)

    def choose(self, unit: Unit, candidates: Sequence[Candidate]) -> Choice:
        if not unit.has_conditions or not (terms := self._terms(unit)):
            return Choice(candidates)
        ordered = sorted(candidates, key=lambda candidate: bool(self._missing(terms, candidate)))
        return Choice(ordered, is_enough=not (self._may_force and self._missing(terms, ordered[0])))

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        problems = []
        for one in (searched for unit in line.units for searched in unit.searched):
            terms = self._terms(one.unit) if one.unit.has_conditions else []
            if missing := self._missing(terms, one.candidates[0]):
                text = one.unit.segment.searched
                named = ", ".join(f"{text[m.begin : m.end]!r} ({' or '.join(m.targets)})" for m in missing)
                problems.append(f"not translated as in the glossary: {named}")
        if not problems:
            return result
        flags = list(dict.fromkeys([*result.flags, "missing_term"]))
        return replace(result, flags=flags, problems=[*result.problems, *dict.fromkeys(problems)])

    def _missing(self, terms: Sequence[Match], candidate: Candidate) -> list[Match]:
        """The terms whose glossary translation is not in the candidate."""
        return [term for term in terms if not self._glossary.is_rendered(term, candidate.translation)]

    def _num_missing(self, translated: TranslatedUnit) -> int:
        return len(self._missing(self._terms(translated.unit), translated.candidates[0]))

    def search_again(self, units: Sequence[Numbered], search: Search) -> Iterator[Numbered]:
        """First write each missing term in place of the words that now stand for it. Units that still lack
        terms are then searched for once more, with the terms wherever the search puts them.
        """
        forced, stuck, open_units = ForcedTerms(self._planner), list[Numbered](), list(units)
        for _ in range(_MOST_REPLACED):
            if not open_units:
                break
            better = self._better(open_units, self._requests_with_terms(open_units, forced, search), search)
            pairs, open_units = list(zip(open_units, better)), []
            for (number, before), after in pairs:
                if not self._num_missing(after):
                    yield number, after
                else:
                    (stuck if after is before else open_units).append((number, after))
        stuck += open_units
        if search.engine.selects:
            requests = [forced.anywhere(unit.unit, self._terms(unit.unit)) for _, unit in stuck]
            better = self._better(stuck, requests, search)
            stuck = [(number, after) for (number, _), after in zip(stuck, better)]
        yield from stuck

    def _requests_with_terms(
        self, units: Sequence[Numbered], forced: "ForcedTerms", search: Search
    ) -> list[Request | None]:
        units_and_ids: list[tuple[Unit, Ids]] = [
            (one.unit, search.ids_of(one.candidates[0])) for _, one in units
        ]
        attentions = search.cross_attention([(unit.src, ids) for unit, ids in units_and_ids])
        return [
            forced.written_again(unit, ids, attention, self._missing(self._terms(unit), one.candidates[0]))
            for (unit, ids), attention, (_, one) in zip(units_and_ids, attentions, units)
        ]

    def _better(
        self, units: Sequence[Numbered], requests: Sequence[Request | None], search: Search
    ) -> list[TranslatedUnit]:
        """For each unit, the new result of its request if that lacks fewer terms, else the present one."""
        best = [unit for _, unit in units]
        for index, again in search.again([unit.unit for unit in best], requests):
            if self._num_missing(again) < self._num_missing(best[index]):
                best[index] = again
        return best


_MOST_PHRASES, _MOST_PIECES = 8, 24
"""Maximum number of phrases in a search, and of tokens in a phrase: more would take long."""


class ForcedTerms:
    """Makes requests for units whose translation lacks terms."""

    def __init__(self, planner: Planner) -> None:
        self._tokenizer, self._most = planner.tokenizer, planner.max_positions or sys.maxsize

    def written_again(
        self, unit: Unit, tgt: Ids, attention: Sequence[Sequence[float]], missing: Sequence[Match]
    ) -> Request | None:
        """A request that keeps the translation `tgt` up to the first word that stands for a missing term,
        writes the term there, and searches for the rest. None if no word stands for a missing term.
        """
        text = as_read(unit.segment.searched)
        aligned = align_segment(self._tokenizer, text, unit.src, tgt, attention, positions=unit.positions)
        places = [(_words_for(aligned, term), term) for term in missing]
        located = [(words, term) for words, term in places if words is not None]
        if not located:
            return None
        (first, last), term = min(located, key=lambda place: place[0])
        begin, end = aligned.target[first][0], aligned.target[last][1]
        spans = self._tokenizer.spans_tgt(tgt)
        kept = next((i for i, span in enumerate(spans) if span[1] > begin), len(tgt))
        target = self._pieces(term.targets[0])
        if kept < len(unit.prefix) or UNK in target:
            return None
        # Keep the next token, too: otherwise the term could become the beginning of a longer word.
        after = [i for i, span in zip(tgt, spans) if span[0] >= end and span[1] > span[0]][:1]
        prefix = [*tgt[:kept], *target, *after]
        limit = min(unit.limit + len(target), self._most)
        return replace(unit.request, prefix=prefix, limit=limit) if len(prefix) < limit else None

    def anywhere(self, unit: Unit, terms: Sequence[Match]) -> Request | None:
        """A request for a translation with all terms, wherever the search puts them. None if no term can be
        written.
        """
        spellings = (self._pieces(target) for target in dict.fromkeys(term.targets[0] for term in terms))
        phrases = [ids for ids in spellings if ids and UNK not in ids and len(ids) <= _MOST_PIECES][
            :_MOST_PHRASES
        ]
        if not phrases:
            return None
        limit = min(unit.limit + sum(map(len, phrases)), self._most)
        return replace(unit.request, wanted=Wanted("phrases", phrases), limit=limit)

    def _pieces(self, target: str) -> Ids:
        """Token ids of a term inside a translation, without a leading space if its script has none."""
        ids = self._tokenizer.encode_tgt([target])[0]
        is_spaced = not count_unsegmented(target[:1])
        return ids if is_spaced or self._tokenizer.pieces_tgt(ids[:1]) != ["▁"] else ids[1:]


def _words_for(aligned: AlignedSegment, term: Match) -> tuple[int, int] | None:
    """First and last target word of a term's translation: the word best aligned to the term, extended to
    neighbours that are aligned mainly to it.
    """
    places = [i for i, (begin, end) in enumerate(aligned.source) if begin < term.end and end > term.begin]
    share = aligned.weights[:, places].sum(axis=1) if places and aligned.weights.size else np.zeros(0)
    if not share.any():
        return None
    stands_for_it = [row.any() and int(row.argmax()) in places for row in aligned.weights]
    first = last = int(share.argmax())
    while first and stands_for_it[first - 1]:
        first -= 1
    while last + 1 < len(stands_for_it) and stands_for_it[last + 1]:
        last += 1
    return first, last
