"""The search for units, whose candidates the stages choose."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_mt.search.beam import Hypothesis
from transformer_mt.translation.assembly import NOTHING, by_utility, candidates_of, joined
from transformer_mt.translation.engines.engine import Engine, Ids, Request, cross_attention, token_log_probs
from transformer_mt.translation.planner import Plan, Planner
from transformer_mt.translation.result import Candidate
from transformer_mt.translation.stages.stage import Numbered, Stage
from transformer_mt.translation.units import LinesInOrder, SourceLine, TranslatedLine, TranslatedUnit, Unit


class UnitSearch:
    """One search of an engine, for the n best of each line."""

    def __init__(self, engine: Engine, planner: Planner, plan: Plan, n_best: int) -> None:
        self.engine, self._planner, self._plan, self._n_best = engine, planner, plan, n_best
        self._tokenizer, self._settings = planner.tokenizer, plan.settings

    def results(self, units: Sequence[Unit]) -> Iterator[Numbered]:
        """(number, result) of each unit as soon as it was searched."""
        for number, unit in enumerate(units):
            if unit.is_fixed:
                segment = unit.segment
                text = segment.text if segment.known is None else segment.known
                flags = [segment.flag] if segment.flag else []
                yield number, TranslatedUnit(unit, [replace(NOTHING, translation=text)], flags)
        numbers = [number for number, unit in enumerate(units) if not unit.is_fixed]
        if not numbers:
            return
        units = [units[number] for number in numbers]
        # Search for more candidates than are returned: mbr chooses among all samples, and some candidates may
        # be duplicates or refused by a stage.
        several = self._settings.search == "mbr" or self._n_best > 1
        several = several or any(unit.has_conditions for unit in units)
        wanted = self._settings.num_hypotheses if several else 1
        incomplete: dict[Stage, list[Numbered]] = {stage: [] for stage in self._plan.stages}
        for number, hypotheses in self.engine.search([u.request for u in units], self._settings, wanted):
            translated, wanting = self._translated(units[number], hypotheses)
            if wanting is None:
                yield numbers[number], translated
            else:
                incomplete[wanting].append((numbers[number], translated))
        for stage, waiting in incomplete.items():
            if waiting:
                yield from stage.search_again(waiting, self)

    def again(self, units: Sequence[Unit], requests: Sequence[Request | None]) -> Iterator[Numbered]:
        """(index, result) of the units that have a request and get a translation that no stage refuses."""
        numbered = [(i, request) for i, request in enumerate(requests) if request is not None]
        if not numbered:
            return
        wanted = self._settings.num_hypotheses
        for index, hypotheses in self.engine.search([r for _, r in numbered], self._settings, wanted):
            i = numbered[index][0]
            if hypotheses and (translated := self._translated(units[i], hypotheses)[0]).candidates:
                yield i, translated

    def _translated(
        self, unit: Unit, hypotheses: Sequence[Hypothesis]
    ) -> tuple[TranslatedUnit, Stage | None]:
        """The unit with its candidates, and the first stage that requests another search, or None."""
        if not hypotheses:
            problem = "the rules of the search allow no translation"
            return TranslatedUnit(unit, [NOTHING], ["no_hypothesis"], [problem]), None
        if self._settings.search == "mbr":
            utility, language = self._settings.utility, self._planner.target_lang
            hypotheses = by_utility(hypotheses, self._tokenizer, utility, language)
        elif self._n_best == 1 and not unit.has_conditions:
            hypotheses = hypotheses[:1]
        candidates: Sequence[Candidate] = candidates_of(hypotheses, self._tokenizer, unit, self._plan.stages)
        wanting = None
        for stage in self._plan.stages:
            choice = stage.choose(unit, candidates)
            candidates = choice.candidates
            if not choice.is_enough:
                wanting = wanting or stage
                if not candidates:
                    return TranslatedUnit(unit, []), wanting
        best = list(candidates[: self._n_best])
        if not self._was_truncated(unit, best[0]):
            return TranslatedUnit(unit, best), wanting
        problem = f"the translation was stopped at {unit.limit - 1} tokens"
        return TranslatedUnit(unit, best, ["truncated"], [problem]), wanting

    def translate(self, lines: Sequence[SourceLine]) -> Iterator[TranslatedLine]:
        """Translations of parts of units."""
        self._planner.plan_lines(lines, self._plan)
        in_order = LinesInOrder(lines)
        for number, unit in self.results([unit for line in lines for unit in line.units]):
            in_order.add(number, unit)
        return in_order.done()

    def joined(self, line: TranslatedLine) -> list[Candidate]:
        """The n best translations of a line."""
        return joined(line, self._n_best, self._planner.splitter)

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        """For each (source, target), without EOS, how much each target token attends to each source token."""
        return cross_attention(self.engine, self._planner.prompt, pairs)

    def ids_of(self, candidate: Candidate) -> Ids:
        """The target pieces of a candidate."""
        return self._tokenizer.ids_tgt(candidate.tokens)

    def _was_truncated(self, unit: Unit, candidate: Candidate) -> bool:
        """True if the candidate has the maximum length, but the model gives EOS less than half of the
        probability.
        """
        if len(candidate.tokens) + 1 < unit.limit:
            return False
        pair = unit.src, self.ids_of(candidate)
        (log_probs,) = token_log_probs(self.engine, self._planner.prompt, [pair])
        return log_probs[-1] < math.log(0.5)
