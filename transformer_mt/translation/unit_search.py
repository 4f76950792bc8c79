"""The search for units, whose candidates the stages choose."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.assembly import NOTHING, by_utility, candidates_of, joined
from transformer_mt.translation.engines.engine import Engine, Ids, Request
from transformer_mt.translation.engines.prompted import cross_attention, token_log_probs
from transformer_mt.translation.planner import Plan, Planner
from transformer_mt.translation.result import Candidate
from transformer_mt.translation.units import LinesInOrder, SourceLine, TranslatedLine, TranslatedUnit, Unit


class UnitSearch:
    """One search of an engine, for the n best of each line."""

    def __init__(self, engine: Engine, planner: Planner, plan: Plan, n_best: int) -> None:
        self.engine, self._planner, self._plan, self._n_best = engine, planner, plan, n_best
        self._tokenizer, self._settings = planner.tokenizer, plan.settings

    def results(self, units: Sequence[Unit]) -> Iterator[tuple[int, TranslatedUnit | None]]:
        """(number, result) of each unit as soon as it was searched; None where the stages refused all
        candidates.
        """
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
        several = self._settings.search == "mbr" or self._n_best > 1 or any(unit.facts for unit in units)
        wanted = self._settings.num_hypotheses if several else 1
        incomplete: list[list[tuple[int, TranslatedUnit]]] = [[] for _ in self._plan.stages]
        for number, hypotheses in self.engine.search([u.request for u in units], self._settings, wanted):
            translated = self._translated(units[number], hypotheses)
            wanting = None
            if translated is not None and units[number].facts:
                wants = (stage.wants_more(translated) for stage in self._plan.stages)
                wanting = next((i for i, wants_more in enumerate(wants) if wants_more), None)
            if translated is None or wanting is None:
                yield numbers[number], translated
            else:
                incomplete[wanting].append((numbers[number], translated))
        for stage, waiting in zip(self._plan.stages, incomplete):
            if waiting:
                yield from stage.improve(waiting, self)

    def again(
        self, units: Sequence[Unit], requests: Sequence[Request | None]
    ) -> Iterator[tuple[int, TranslatedUnit]]:
        """(index, result) of the units that have a request and get a translation that no stage refuses."""
        numbered = [(i, request) for i, request in enumerate(requests) if request is not None]
        if not numbered:
            return
        wanted = self._settings.num_hypotheses
        for index, hypotheses in self.engine.search([r for _, r in numbered], self._settings, wanted):
            i = numbered[index][0]
            translated = self._translated(units[i], hypotheses) if hypotheses else None
            if translated is not None:
                yield i, translated

    def _translated(self, unit: Unit, hypotheses: Sequence[Hypothesis]) -> TranslatedUnit | None:
        """The unit with its candidates; None where a stage refused all of them."""
        if not hypotheses:
            problem = "the rules of the search allow no translation"
            return TranslatedUnit(unit, [NOTHING], ["no_hypothesis"], [problem])
        if self._settings.search == "mbr":
            utility, language = self._settings.utility, self._planner.target_lang
            hypotheses = by_utility(hypotheses, self._tokenizer, utility, language)
        elif self._n_best == 1 and not unit.facts:
            hypotheses = hypotheses[:1]
        candidates: Sequence[Candidate] = candidates_of(hypotheses, self._tokenizer, unit, self._plan.stages)
        for stage in self._plan.stages if unit.facts else ():
            if not (candidates := stage.choose(unit, candidates)):
                return None
        best = list(candidates[: self._n_best])
        remarks = [remark for stage in self._plan.stages for remark in stage.remarks(unit, best[0])]
        if self._was_truncated(unit, best[0]):
            remarks.append(("truncated", f"the translation was stopped at {unit.limit - 1} tokens"))
        return TranslatedUnit(unit, best, [flag for flag, _ in remarks], [text for _, text in remarks])

    def recovered(self, units: Sequence[Unit]) -> list[TranslatedUnit]:
        """The units that have no candidate, as the stage that refused them recovers them."""
        by_number: dict[int, TranslatedUnit] = {}
        for stage in self._plan.stages:
            refused = [i for i, unit in enumerate(units) if stage in unit.facts and type(stage).refuses]
            if refused:
                by_number |= zip(refused, stage.recover([units[i] for i in refused], self))
        return [by_number[i] for i in range(len(units))]

    def translate(self, lines: Sequence[SourceLine]) -> Iterator[TranslatedLine]:
        """Translations of parts of units."""
        planned = self._planner.lines(lines, self._plan)
        in_order = LinesInOrder(planned)
        for number, unit in self.results([unit for line in planned for unit in line.units]):
            assert unit is not None  # stages refuse no part
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
        """True if the candidate ended at its limit although the model found another token likelier than the
        end.
        """
        if len(candidate.tokens) + 1 < unit.limit:
            return False
        pair = unit.src, self.ids_of(candidate)
        (log_probs,) = token_log_probs(self.engine, self._planner.prompt, [pair])
        return log_probs[-1] < math.log(0.5)
