"""Translates lines with any engine: one translation per line, in the same order.

Begin with `Translator.stream`: lines become units that fit the model (planner.py), stages change them, an
engine searches (`UnitSearch`), stages choose among the candidates, and `line_result` joins each line's units.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.run_folder import RunFolder
from transformer_mt.search.hypothesis import Hypothesis, ranked
from transformer_mt.text.lines import CONTROL, control_characters
from transformer_mt.translation.engines.divided_engine import num_workers, translate_in_workers
from transformer_mt.translation.engines.engine import (
    Check,
    Engine,
    EngineRequest,
    Ids,
    Request,
    cross_attention,
    load_model_to_search,
    token_log_probs,
)
from transformer_mt.translation.planner import (
    LONE_CR,
    Direction,
    Plan,
    Planner,
    Splitter,
    can_translate,
    find_direction,
)
from transformer_mt.translation.result import (
    Candidate,
    Options,
    Translation,
    check_texts,
    merge_candidates,
    retried,
    wider,
)
from transformer_mt.translation.stages.call import NO_RESOURCES, Call, Resources, build_stages, resource_class
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translation.stages.stage import Numbered, Stage
from transformer_mt.translation.units import LinesInOrder, SourceLine, TranslatedLine, TranslatedUnit, Unit

if TYPE_CHECKING:
    from transformer_mt.model.interface import TranslationModel

_LEAST, _MOST = 1024, 16_384
_SECONDS = 10.0
NOTHING = Candidate(translation="", score=0.0, log_prob=0.0, tokens=[])


class Translator:
    """A trained model with its vocabulary and the settings of its search: an engine, and the stages that
    lines pass before and after it (stages/call.py). It never changes: `towards` and similar methods return
    new translators.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        config: Config,
        decode: DecodeConfig | None = None,
        others: Sequence[Config] = (),
        resources: Resources = NO_RESOURCES,
        direction: Direction | None = None,
    ) -> None:
        """`others` are the configs of the other models of an ensemble; `resources` are for the stages;
        `direction` is the config's by default.
        """
        self.engine, self.tokenizer, self.decode = engine, tokenizer, decode or config.decode
        self.directions = config.data.directions
        """Source and target language of what the model was trained on."""
        self.configs = [config, *others]
        self.resources = resources
        self.source_lang, self.target_lang = direction or (config.data.source_lang, config.data.target_lang)

    def _with(self, **changes: Any) -> "Translator":
        config, *others = self.configs
        kept = {
            "engine": self.engine, "tokenizer": self.tokenizer, "config": config, "decode": self.decode,
            "others": others, "resources": self.resources,
            "direction": (self.source_lang, self.target_lang),
        }  # fmt: skip
        return type(self)(**{**kept, **changes})

    def towards(self, target: str | None, source: str | None = None) -> "Translator":
        """A translator of the same model between these languages. `target` is by default the current one. So
        is `source`, unless the model was trained into this target only from others: then the first of those
        is taken. InputError for a language the model was not trained on.
        """
        usual = self.source_lang, self.target_lang
        return self._with(direction=find_direction(self.directions, target, source, usual))

    def with_engine(self, engine: Engine) -> "Translator":
        """The translator that searches with another engine for the same model."""
        return self._with(engine=engine)

    def with_settings(self, **settings: Any) -> "Translator":
        """The translator with these settings of `decode`."""
        return self._with(decode=self.decode.model_copy(update=settings))

    def with_resources(self, **resources: Any) -> "Translator":
        """The translator that follows these resources (`glossary=...`), each in its direction."""
        return self._with(resources=self.resources.and_these(resources))

    def with_files(self, **files: str | Path | None) -> "Translator":
        """The translator that follows these files in its direction: `glossary` and `memory`, or other
        resources (`transformer-mt parts resource`). InputError for a file that cannot be read.
        """
        direction = self.source_lang, self.target_lang
        return self._with(resources=self.resources.with_files(direction, **files))

    def for_set(self, languages: Direction) -> "Translator":
        """The translator for a validation or test set of these languages. InputError if the model does not
        translate between them.
        """
        if not can_translate(self.directions, bool(self.planner.language_ids), languages):
            known = ", ".join(f"{source} to {target}" for source, target in self.directions)
            raise InputError(f"the model translates {known}, but the set is {languages[0]} to {languages[1]}")
        try:
            return self.towards(languages[1], languages[0])
        except InputError:
            return self

    @cached_property
    def planner(self) -> Planner:
        """Divides lines into what the model takes."""
        direction = self.source_lang, self.target_lang
        return Planner(self.tokenizer, self.configs, self.engine.max_positions, direction)

    @property
    def engine_in_words(self) -> str:
        """The engine and its arithmetic, such as "torch in float32"."""
        dtype = self.engine.dtype
        return f"{self.engine.name} {'as exported' if dtype == 'default' else f'in {dtype}'}"

    def encode_src(self, lines: Sequence[str], tag: str | None = None) -> list[Ids]:
        """Token ids of whole lines, after the control tokens: the target language if the model needs it, and
        the tag.
        """
        before = self.planner.ids_before(tag)
        return [[*before, *ids] for ids in self.planner.encode(lines)]

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """For each (source, target), without EOS, the log-probability of each target token and of EOS after
        them.
        """
        return token_log_probs(self.engine, self.planner.prompt, pairs)

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        """For each (source, target), without EOS, how much each target token attends to each source token."""
        return cross_attention(self.engine, self.planner.prompt, pairs)

    @property
    def max_src_length(self) -> int:
        """Maximum number of tokens of a source, including EOS; longer sources are divided."""
        return self.planner.max_src_length

    @property
    def max_positions(self) -> int | None:
        """Maximum number of tokens per side, including EOS, that the model has positions for; None if there
        is no limit.
        """
        return self.planner.max_positions

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        dtype: str | None = None,
        decode: dict[str, Any] | None = None,
        engine: str = "auto",
        ensemble: Sequence[str | Path] = (),
        **resources: str | Path | None,
    ) -> "Translator":
        """Load a run's folder or an export. `decode` overrides settings of the search (`{"beam": 1}`). Among
        `resources`, `glossary` is a file of terms and `memory` a file of earlier translations. On a CPU, the
        engine `auto` uses a run's own export if that gives the same translations.

        `ensemble` names further runs that translate together with this one. `dtype` is by default float32
        for a run, and the export's own type for an export.
        """
        selects = [
            resource_class(name).needs_selection for name, file in resources.items() if file is not None
        ]
        request = EngineRequest(engine, device, dtype, has_rules=any(selects))
        translator = cls.of_run(RunFolder(folder), request, decode, [RunFolder(of) for of in ensemble])
        return translator.with_files(**resources)

    @classmethod
    def of_run(
        cls,
        run: RunFolder,
        request: EngineRequest,
        decode: Mapping[str, Any] | None = None,
        ensemble: Sequence[RunFolder] = (),
        check: Check | None = None,
    ) -> "Translator":
        """The translator of a run or an export (`load_model_to_search`)."""
        loaded = load_model_to_search(run, request, decode, ensemble, check)
        config, *others = loaded.configs
        calibration = None if others else Calibration.load(loaded.run)
        if calibration and not calibration.fits(len(loaded.tokenizer.all_pieces_src)):
            calibration = None
        return cls(loaded.engine, loaded.tokenizer, config, others=others, resources=Resources(calibration))

    @classmethod
    def of_config(
        cls,
        model: "TranslationModel",
        tokenizer: Tokenizer,
        config: Config,
        decode: DecodeConfig | None = None,
    ) -> "Translator":
        """The translator of a model that was built from `config`."""
        from transformer_mt.translation.engines.torch_engine import TorchEngine

        return cls(TorchEngine(model, tokenizer), tokenizer, config, decode)

    def translate(
        self, lines: Sequence[str], n_best: int = 1, max_length: int | None = None, **options: Any
    ) -> list[Translation]:
        """Return one Translation per line, in order. `max_length` is the maximum of tokens per
        translated sentence (`decode.max_length`); see Options for the others.

        Raises InputError if the options do not fit the search.
        """
        return list(self.stream(lines, Options(n_best, **options), max_length))

    def stream(
        self, lines: Sequence[str], options: Options = Options(), max_length: int | None = None
    ) -> Iterator[Translation]:
        """Yield one Translation per line, in order, once it and all earlier ones are done. On a GPU, the
        results of 2,048 or more lines arrive all at once, because other processes share the work on them.
        """
        check_texts("lines", lines, "give [text]")
        least = max(1, self.decode.min_length)
        if max_length is not None and not (isinstance(max_length, int) and max_length >= least):
            kind = "" if isinstance(max_length, int) else "a whole number of "
            raise InputError(f"max_length must be {kind}at least {least}, but is {max_length!r}")
        settings = self.decode.model_copy(update={"max_length": max_length}) if max_length else self.decode
        options.check_lines(len(lines))
        stages = self._checked(options, settings)

        def again(numbers: Sequence[int], settings: DecodeConfig) -> list[Translation]:
            chosen, line_options = (
                [lines[i] for i in numbers],
                replace(options.of_lines(numbers), retry=False),
            )
            return list(self._stream(chosen, line_options, settings, self._checked(line_options, settings)))

        results = self._divided(lines, options, settings) or self._stream(lines, options, settings, stages)
        yield from retried(results, settings, again) if options.retry else results

    def check(self, options: Options) -> None:
        """InputError, before any work, if the options do not fit the search or one another."""
        self._checked(options, self.decode)

    def _checked(self, options: Options, settings: DecodeConfig) -> list[Stage]:
        self.engine.check(settings)
        options.check(settings)
        stages = build_stages(Call.of(self.resources, self.planner, settings, options))
        if options.retry:
            self.engine.check(wider(settings))
        if options.tag is not None:
            self.tokenizer.tag_id(options.tag)
        return stages

    def _divided(
        self, lines: Sequence[str], options: Options, settings: DecodeConfig
    ) -> Iterator[Translation] | None:
        """The results of `_stream`, from processes that divide the lines; None if that saves no time."""
        if options.prefixes or not (options.protect is None or isinstance(options.protect, str)):
            return None
        count = num_workers(self.engine, len(lines))

        def translate(engine: Engine, part: slice) -> list[Translation]:
            other = self.with_engine(engine)
            return list(other._stream(lines[part], options, settings, other._checked(options, settings)))

        return translate_in_workers(self.engine, translate, len(lines), count) if count > 1 else None

    def _stream(
        self, lines: Sequence[str], options: Options, settings: DecodeConfig, stages: Sequence[Stage]
    ) -> Iterator[Translation]:
        """The results of the lines, all searched together."""
        prefixes = options.prefixes or [""] * len(lines)
        sources = [SourceLine.of(line, i, prefix) for i, (line, prefix) in enumerate(zip(lines, prefixes))]
        plan = Plan(stages, settings, options.tag)
        self.planner.plan_lines(sources, plan)
        units = [unit for line in sources for unit in line.units]
        in_order = LinesInOrder(sources)
        yield from self._results(in_order, options, stages)  # blank lines at the beginning need no search
        for number, unit in UnitSearch(self.engine, self.planner, plan, options.n_best).results(units):
            in_order.add(number, unit)
            yield from self._results(in_order, options, stages)
        in_order.check_all_done()

    def _results(
        self, in_order: LinesInOrder, options: Options, stages: Sequence[Stage]
    ) -> Iterator[Translation]:
        """The results of the lines that are done."""
        for line in in_order.done():
            result = line_result(line, options.n_best, self.planner.splitter, stages)
            result = self._aligned(result, line, stages) if options.align else result
            # Stages may have made two candidates equal.
            yield replace(result, n_best=each_once(result.n_best)) if options.n_best > 1 else result

    def _aligned(self, result: Translation, line: TranslatedLine, stages: Sequence[Stage]) -> Translation:
        """The result with alignments: positions count over the tokens of all units."""
        from transformer_mt.translation.line_alignment import LineAlignment  # NumPy takes time to import

        searched = [unit for translated in line.units for unit in translated.searched]
        tokenizer = self.tokenizer
        pairs = [
            (one.unit.src, tokenizer.ids_tgt(one.candidates[rank].tokens))
            for rank in range(len(result.n_best))
            for one in searched
        ]
        attentions = self.cross_attention(pairs)
        source_tokens: list[str] = []
        alignment: list[int] = []
        for (src, _), rows in zip(pairs, attentions[: len(searched)]):  # of the best candidate
            alignment += [len(source_tokens) + max(range(len(row)), key=row.__getitem__) for row in rows]
            source_tokens += tokenizer.pieces_src(src)
        n_best = []
        for rank, candidate in enumerate(result.n_best):
            ranks = slice(rank * len(searched), (rank + 1) * len(searched))
            aligned = LineAlignment(tokenizer, searched, pairs[ranks], attentions[ranks], stages)
            n_best.append(
                replace(candidate, aligned=aligned.of(line, result.source, candidate.translation, rank))
            )
        return replace(result, n_best=n_best, source_tokens=source_tokens, alignment=alignment)


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
        """The target tokens of a candidate."""
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


def by_utility(
    samples: Sequence[Hypothesis], tokenizer: Tokenizer, utility: Literal["chrf", "bleu"], language: str
) -> list[Hypothesis]:
    """The samples, ranked by their likeness to the others."""
    from transformer_mt.search.sampling import expected_utilities  # NumPy takes time to import

    texts = [tokenizer.decode_tgt(sample.tokens[:-1]) for sample in samples]
    utilities = expected_utilities(texts, utility, language)
    return ranked([replace(sample, score=value) for sample, value in zip(samples, utilities)])


def candidates_of(
    hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, unit: Unit, stages: Sequence[Stage]
) -> list[Candidate]:
    """The hypotheses of a unit as text, each text once."""
    by_text: dict[str, Candidate] = {}
    for hypothesis in hypotheses:
        ids = hypothesis.tokens[:-1]
        text = tokenizer.decode_tgt(ids)
        for stage in stages:
            text = stage.text(unit, text)
        if text not in by_text:
            by_text[text] = Candidate(
                translation=text,
                score=hypothesis.score,
                log_prob=hypothesis.log_prob,
                tokens=tokenizer.pieces_tgt(ids),
            )
    return list(by_text.values())


def joined(line: TranslatedLine, n_best: int, splitter: Splitter) -> list[Candidate]:
    """The line's n best translations: translation k joins the k-th best candidates of all units. The
    unit with the fewest candidates limits their number.
    """
    if not line.units:
        return [NOTHING]
    before, after = line.line.before, line.line.after
    if len(line.units) == 1 and not before and not after:
        return line.units[0].candidates[:n_best]
    gaps = [translated.unit.segment.gap for translated in line.units]
    ranks = [len(translated.candidates) for translated in line.units if not translated.unit.is_fixed]
    lines = []
    for rank in range(min([n_best, *ranks]) if ranks else 1):
        candidates = [translated.candidate(rank) for translated in line.units]
        text = splitter.join(gaps, [candidate.translation for candidate in candidates])
        searched = [c for c, translated in zip(candidates, line.units) if not translated.unit.is_fixed]
        lines.append(replace(merge_candidates(searched), translation=f"{before}{text}{after}"))
    return lines


def line_result(
    line: TranslatedLine, n_best: int, splitter: Splitter, stages: Sequence[Stage]
) -> Translation:
    """A line's translation, put together from those of its units and finished by the stages."""
    source = line.line.source
    has_control = CONTROL.search(source) is not None
    if not line.units:
        return Translation(
            source=source, translation="", score=0.0, log_prob=0.0, tokens=[], n_best=[NOTHING],
            problems=["there is nothing to translate"], flags=["empty"],
        )  # fmt: skip
    if line.line.is_fixed:
        same = replace(NOTHING, translation=LONE_CR.sub(" ", source))
        return Translation(
            source=source, translation=same.translation, score=0.0, log_prob=0.0, tokens=[], n_best=[same],
            problems=[*control_characters(source)], flags=["unchanged", *["control_character"] * has_control],
        )  # fmt: skip
    problems = [*control_characters(source), *(p for unit in line.units for p in unit.problems)]
    flags = [*["control_character"] * has_control, *(flag for unit in line.units for flag in unit.flags)]
    if len(line.units) > 1:
        flags.insert(0, "split")
    if line.line.is_too_long:
        problems.insert(0, f"the source was translated in {len(line.units)} parts: it is too long for one")
    candidates = joined(line, n_best, splitter)
    best = candidates[0]
    result = Translation(
        source=source,
        translation=best.translation,
        score=best.score,
        log_prob=best.log_prob,
        tokens=best.tokens,
        problems=list(dict.fromkeys(problems)),
        flags=list(dict.fromkeys(flags)),
        n_best=candidates,
        segments=_segments(line) if _was_changed(line) else [],
    )
    for stage in stages:
        result = stage.finish(line, result)
    return result


def each_once(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The first candidate of each text."""
    by_text: dict[str, Candidate] = {}
    for candidate in candidates:
        by_text.setdefault(candidate.translation, candidate)
    return list(by_text.values())


def _was_changed(line: TranslatedLine) -> bool:
    """True if the searched texts differ from the line itself, as after a split. `score` needs them then."""
    return [unit.segment.searched for unit in line.line.units] != [line.line.source.strip()]


def _segments(line: TranslatedLine) -> list[dict[str, Any]]:
    return [
        {"source": translated.unit.segment.searched, "tokens": len(translated.candidates[0].tokens)}
        for translated in line.units
        if not translated.unit.is_fixed
    ]


class ChunkSize:
    """Chooses the number of lines of the next chunk. Call `next` when the previous chunk is done.

    The lines of a chunk are sorted by length into batches, and cores wait for each other at its end. So
    chunks grow as long as they take less than ten seconds. On slow machines they stay small: results are
    written in order, so a killed process loses at most the work on one chunk.
    """

    def __init__(self) -> None:
        self._lines, self._since = _LEAST, float("-inf")

    def next(self) -> int:
        now = time.monotonic()
        if now - self._since < _SECONDS:
            self._lines = min(2 * self._lines, _MOST)
        self._since = now
        return self._lines
