"""The search for units: candidates that keep protected text and have the terms of a glossary."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_mt.config import DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.terms.glossary import Match
from transformer_mt.translation.assembly import (
    NOTHING,
    by_utility,
    candidates_of,
    ids_of,
    joined,
    merge_candidates,
)
from transformer_mt.translation.engines.engine import Engine, Request
from transformer_mt.translation.engines.prompted import cross_attention, token_log_probs
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.protected_text import ProtectedText, Span
from transformer_mt.translation.result import Candidate, Options
from transformer_mt.translation.units import LinesInOrder, TranslatedLine, TranslatedUnit, Unit

_MOST_REPLACED = 4
"""Terms of a sentence that are written where the words stood that they replace."""


class UnitSearch:
    """One search of an engine, with the options of a call."""

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, planner: Planner, settings: DecodeConfig, options: Options
    ) -> None:
        self._engine, self._tokenizer, self._planner = engine, tokenizer, planner
        self._settings, self._options = settings, options
        self._target_lang = planner.target_lang

    def results(self, units: Sequence[Unit]) -> Iterator[tuple[int, TranslatedUnit | None]]:
        """(number, result) of each unit as soon as it was searched; None where no candidate kept the
        protected text.
        """
        for number, unit in enumerate(units):
            if unit.is_fixed:
                text = unit.segment.text if unit.segment.known is None else unit.segment.known
                flags = [] if unit.segment.known is None else ["memory"]
                yield number, TranslatedUnit(unit, [replace(NOTHING, translation=text)], flags)
        numbers = [number for number, unit in enumerate(units) if not unit.is_fixed]
        if not numbers:
            return
        units = [units[number] for number in numbers]
        # Search for more candidates than are returned: mbr chooses among all samples, and some candidates may
        # be duplicates or lack the protected text.
        has_terms = any(unit.terms for unit in units)
        has_conditions = has_terms or any(unit.protected for unit in units)
        several = self._settings.search == "mbr" or self._options.n_best > 1 or has_conditions
        wanted = self._settings.num_hypotheses if several else 1
        incomplete: list[tuple[int, TranslatedUnit]] = []
        may_force = has_terms and self._settings.search == "beam"
        for number, hypotheses in self._engine.search(
            [unit.request for unit in units], self._settings, wanted
        ):
            found = self._translated(units[number], hypotheses)
            if found is not None and may_force and self._missing_terms(units[number], found.candidates[0]):
                incomplete.append((number, found))
            else:
                yield numbers[number], found
        for number, found in self._with_forced_terms(incomplete):
            yield numbers[number], found

    def _with_forced_terms(
        self, units: list[tuple[int, TranslatedUnit]]
    ) -> Iterator[tuple[int, TranslatedUnit]]:
        """Units whose translation lacks terms, with one that has more of them where there is one: first each
        term is written where the words stood that it replaces, then what is left wherever the search puts it.
        """
        stuck: list[tuple[int, TranslatedUnit]] = []
        for _ in range(_MOST_REPLACED):
            if not units:
                break
            found = self._forced(units, self._written_again(units))
            again: list[tuple[int, TranslatedUnit]] = []
            for (number, before), after in zip(units, found):
                if not self._num_missing(after):
                    yield number, after
                else:
                    (stuck if after is before else again).append((number, after))
            units = again
        stuck += units
        if self._engine.writes_phrases:
            from transformer_mt.translation.forced_terms import ForcedTerms

            terms = ForcedTerms(self._tokenizer, self._planner.max_positions)
            forced = [terms.anywhere(unit.unit) for _, unit in stuck]
            found = self._forced(stuck, forced)
            stuck = [(number, after) for (number, _), after in zip(stuck, found)]
        yield from stuck

    def _forced(
        self, units: Sequence[tuple[int, TranslatedUnit]], forced: Sequence[Request | None]
    ) -> list[TranslatedUnit]:
        """What is found by these requests for units, or what they had where that lacks fewer terms."""
        best = [unit for _, unit in units]
        asked = [(k, request) for k, request in enumerate(forced) if request is not None]
        requests = [request for _, request in asked]
        wanted = self._settings.num_hypotheses
        for index, hypotheses in self._engine.search(requests, self._settings, wanted) if requests else ():
            before = best[asked[index][0]]
            again = self._translated(before.unit, hypotheses) if hypotheses else None
            if again is not None and self._num_missing(again) < self._num_missing(before):
                best[asked[index][0]] = again
        return best

    def _translated(self, unit: Unit, hypotheses: Sequence[Hypothesis]) -> TranslatedUnit | None:
        """The unit with its candidates; None where none kept the protected text."""
        if not hypotheses:
            problem = "the rules of the search leave no translation"
            return TranslatedUnit(unit, [NOTHING], ["no_hypothesis"], [problem])
        if (
            self._options.n_best == 1
            and not (unit.protected or unit.terms)
            and self._settings.search != "mbr"
        ):
            hypotheses = hypotheses[:1]
        if self._settings.search == "mbr":
            hypotheses = by_utility(hypotheses, self._tokenizer, self._settings.utility, self._target_lang)
        candidates = candidates_of(hypotheses, self._tokenizer, unit, self._target_lang)
        if (protected := unit.protected) is not None:
            candidates = [c for c in candidates if protected.survived(unit.segment.text, c.translation)]
            if not candidates:
                return None
        if unit.terms:  # first those that have all terms
            candidates = sorted(candidates, key=lambda c: bool(self._missing_terms(unit, c)))
        best = candidates[: self._options.n_best]
        flags, problems = [], []
        if missing := self._missing_terms(unit, best[0]):
            flags.append("missing_term")
            problems.append(_about_missing(unit, missing))
        if self._was_truncated(unit, best[0]):
            flags.append("truncated")
            problems.append(f"the translation was stopped at {unit.limit - 1} pieces")
        return TranslatedUnit(unit, best, flags, problems)

    def _missing_terms(self, unit: Unit, candidate: Candidate) -> list[Match]:
        """The terms of the unit of which the candidate does not have a translation."""
        glossary = self._planner.glossary
        if glossary is None:
            return []
        return [term for term in unit.terms if not glossary.is_rendered(term, candidate.translation)]

    def _num_missing(self, found: TranslatedUnit) -> int:
        return len(self._missing_terms(found.unit, found.candidates[0]))

    def _written_again(self, units: Sequence[tuple[int, TranslatedUnit]]) -> list[Request | None]:
        from transformer_mt.translation.forced_terms import ForcedTerms  # NumPy takes time to import

        each = [(found.unit, ids_of(self._tokenizer, found.candidates[0])) for _, found in units]
        attentions = cross_attention(
            self._engine, self._planner.prompt, [(unit.src, ids) for unit, ids in each]
        )
        forced = ForcedTerms(self._tokenizer, self._planner.max_positions)
        return [
            forced.written_again(unit, ids, attention, self._missing_terms(unit, found.candidates[0]))
            for (unit, ids), attention, (_, found) in zip(each, attentions, units)
        ]

    def around(self, units: Sequence[Unit]) -> list[TranslatedUnit]:
        """Units whose protected text did not survive: the text around it is translated alone, all in one
        batch.
        """
        protections = [unit.protected for unit in units if unit.protected is not None]
        spans = [protected.spans(unit.segment.text) for unit, protected in zip(units, protections)]
        texts, prefixes, capitals = [], [], []
        for unit, own in zip(units, spans):
            # The prefix begins the first span; before protected text it is put in front.
            starts_translatable = own[0].translatable
            for span in own:
                if span.translatable:
                    texts.append(span.text.strip())
                    prefixes.append(unit.prefix_text if starts_translatable and span is own[0] else "")
                    capitals.append(unit.is_in_capitals)
        planned = self._planner.lines(
            texts, prefixes, self._settings, tag=self._options.tag, in_capitals=capitals
        )
        in_order = LinesInOrder(planned)
        for number, part in self.results([part for line in planned for part in line.units]):
            assert part is not None  # nothing in it is protected
            in_order.add(number, part)
        lines = in_order.done()
        return [
            self._rejoined(unit, protected, [(s, next(lines) if s.translatable else None) for s in own])
            for unit, own, protected in zip(units, spans, protections)
        ]

    def _rejoined(
        self, unit: Unit, protected: ProtectedText, spans: list[tuple[Span, TranslatedLine | None]]
    ) -> TranslatedUnit:
        """The unit whose spans were translated one by one."""
        lines = [line for _, line in spans if line is not None]
        of_lines = [joined(line, self._options.n_best, self._planner.splitter) for line in lines]
        candidates = []
        for rank in range(min(map(len, of_lines), default=1)):
            chosen = [of_line[rank] for of_line in of_lines]
            text = protected.rejoin([span for span, _ in spans], [c.translation for c in chosen])
            if unit.prefix_text and not spans[0][0].translatable:
                text = f"{unit.prefix_text} {text.lstrip()}"
            candidates.append(replace(merge_candidates(chosen), translation=text))
        flags, problems = [], []
        if lines:
            flags.append("protected_split")
            problems.append(
                "protected text was lost in the translation; the text around it was translated separately"
            )
        for part in (part for line in lines for part in line.units):
            flags += part.flags
            problems += part.problems
        return TranslatedUnit(unit, candidates, flags, problems, spans)

    def _was_truncated(self, unit: Unit, candidate: Candidate) -> bool:
        """Whether the candidate ended at its limit although the model found another token likelier than the
        end.
        """
        if len(candidate.tokens) + 1 < unit.limit:
            return False
        (log_probs,) = token_log_probs(
            self._engine, self._planner.prompt, [(unit.src, ids_of(self._tokenizer, candidate))]
        )
        return log_probs[-1] < math.log(0.5)


def _about_missing(unit: Unit, missing: Sequence[Match]) -> str:
    """A sentence about terms that a translation does not have."""
    text = unit.segment.searched
    terms = ", ".join(f"{text[m.begin : m.end]!r} ({' or '.join(m.targets)})" for m in missing)
    return f"not translated as in the glossary: {terms}"
