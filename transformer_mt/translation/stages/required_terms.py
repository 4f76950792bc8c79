"""Terms of a glossary: translations must have them.

A model that was trained for it (`data.terms`) reads them in its source. Of the candidates those with all
terms come first; where none has them, further searches write what is missing.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transformer_mt.config import DecodeConfig
from transformer_mt.data.vocabulary.term_pieces import PieceTerm, TermPieces, pieces_of_span
from transformer_mt.terms.glossary import Glossary, Match
from transformer_mt.text.lines import as_read
from transformer_mt.translation.engines.engine import Ids, Request
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.result import Candidate, Translation
from transformer_mt.translation.stages.call import Call
from transformer_mt.translation.stages.stage import Choice, Numbered, Search, Stage
from transformer_mt.translation.units import TranslatedLine, TranslatedUnit, Unit

if TYPE_CHECKING:
    from transformer_mt.translation.stages.forced_terms import ForcedTerms

_MOST_REPLACED = 4
"""Terms of a sentence that are written where the words stood that they replace."""


class Terms(Stage):
    """The terms of one glossary."""

    @classmethod
    def of_call(cls, call: Call) -> "Terms | None":
        glossary = call.resources.glossary
        return cls(glossary, call.planner, call.settings) if glossary else None

    def __init__(self, glossary: Glossary, planner: Planner, settings: DecodeConfig) -> None:
        self._glossary, self._planner = glossary, planner
        self._tokenizer = planner.tokenizer
        self._pieces = TermPieces.of(planner.tokenizer)
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
        if self._pieces is None:
            return unit
        ids, spans = self._tokenizer.spans_src(text)
        first = len(unit.src) - len(ids)
        if first < 0:  # the source was truncated
            return unit
        inserted: list[PieceTerm] = []
        for term in terms:
            begin, end = pieces_of_span(spans, term.begin, term.end)
            if begin < end and (not inserted or begin >= inserted[-1][1]):
                target = self._tokenizer.encode_src([term.targets[0]])[0]
                inserted.append((begin, end, target))
        written = self._pieces.inserted(ids, inserted)
        if not inserted or first + len(written) >= self._planner.max_src_length:
            return unit
        positions = [[first + i for i in of_piece] for of_piece in self._pieces.text_positions(written)]
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
        """First each missing term is written where the words stood that it replaces, then what is left
        wherever the search puts it.
        """
        from transformer_mt.translation.stages.forced_terms import ForcedTerms  # NumPy takes time to import

        forced, stuck, open_units = ForcedTerms(self._planner), list[Numbered](), list(units)
        for _ in range(_MOST_REPLACED):
            if not open_units:
                break
            better = self._better(open_units, self._written_again(open_units, forced, search), search)
            pairs, open_units = list(zip(open_units, better)), []
            for (number, before), after in pairs:
                if not self._num_missing(after):
                    yield number, after
                else:
                    (stuck if after is before else open_units).append((number, after))
        stuck += open_units
        if search.engine.writes_phrases:
            requests = [forced.anywhere(unit.unit, self._terms(unit.unit)) for _, unit in stuck]
            better = self._better(stuck, requests, search)
            stuck = [(number, after) for (number, _), after in zip(stuck, better)]
        yield from stuck

    def _written_again(
        self, units: Sequence[Numbered], forced: "ForcedTerms", search: Search
    ) -> list[Request | None]:
        unit_ids: list[tuple[Unit, Ids]] = [(one.unit, search.ids_of(one.candidates[0])) for _, one in units]
        attentions = search.cross_attention([(unit.src, ids) for unit, ids in unit_ids])
        return [
            forced.written_again(unit, ids, attention, self._missing(self._terms(unit), one.candidates[0]))
            for (unit, ids), attention, (_, one) in zip(unit_ids, attentions, units)
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
