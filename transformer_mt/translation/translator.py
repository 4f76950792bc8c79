"""Lines in, translations out: the same number, in the same order, whichever engine searches."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError, Setting
from transformer_mt.importing.model_folder import run_of
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.usage import check_translates
from transformer_mt.terms.glossary import Glossary, Term
from transformer_mt.text.languages import is_natural
from transformer_mt.translation.assembly import each_once, ids_of, line_result
from transformer_mt.translation.confidence import Calibration
from transformer_mt.translation.direction import Direction, can_translate, find_direction
from transformer_mt.translation.engines.choice import export_to_search
from transformer_mt.translation.engines.engine import Engine, Ids
from transformer_mt.translation.engines.prompted import cross_attention, token_log_probs
from transformer_mt.translation.line_workers import num_workers, translate_in_workers
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.result import Options, Translation
from transformer_mt.translation.retry import better, looks_wrong, wider
from transformer_mt.translation.unit_search import UnitSearch
from transformer_mt.translation.units import LinesInOrder, TranslatedLine

if TYPE_CHECKING:
    from transformer_mt.memories.memory import Memory
    from transformer_mt.model.interface import TranslationModel


class Translator:
    """A trained model with its vocabulary and the settings of its search."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        config: Config,
        decode: DecodeConfig | None = None,
        others: Sequence[Config] = (),
        calibration: Calibration | None = None,
        glossary: Glossary | None = None,
        memory: "Memory | None" = None,
    ) -> None:
        """`others` are the configs of the other models of an ensemble; `calibration` gives each translation a
        confidence; `glossary` has terms that translations must have, `memory` what was translated before.
        """
        data = config.data
        self.calibration = calibration
        self.engine, self.tokenizer, self.decode = engine, tokenizer, decode or config.decode
        self.directions = data.directions
        """Source and target language of what the model was trained on."""
        self._configs = [config, *others]
        self.glossary, self.memory = glossary, memory
        self._second: Translator | None = None
        """The search by which lines that look wrong are translated again."""
        self._set_direction((data.source_lang, data.target_lang))

    def towards(self, target: str | None, source: str | None = None) -> "Translator":
        """The translator between these languages, of the same model. None is the present target, and the
        source of a corpus in this direction. InputError for a language the model was not trained on.
        """
        other, usual = copy.copy(self), (self.source_lang, self.target_lang)
        other._set_direction(find_direction(self.directions, target, source, usual))
        return other

    def with_engine(self, engine: Engine, protect_usual: bool | None = None) -> "Translator":
        """The translator that searches with another engine for the same model, and protects what is usually
        protected, or not; None is as before.
        """
        other = copy.copy(self)
        other.engine = engine
        if protect_usual is not None and protect_usual != self.decode.protect_usual:
            other.decode = self.decode.model_copy(update={"protect_usual": protect_usual})
        return other

    def with_glossary(self, glossary: Glossary | None) -> "Translator":
        """The translator that translates the terms of a glossary as it says; it is of this direction."""
        other = copy.copy(self)
        other.glossary = glossary
        other._set_direction((self.source_lang, self.target_lang))
        return other

    def with_memory(self, memory: "Memory | None") -> "Translator":
        """The translator that knows what was translated before: the same text is translated in the same way,
        and a model that was trained for it sees the translation of a similar one.
        """
        other = copy.copy(self)
        other.memory = memory
        other._set_direction((self.source_lang, self.target_lang))
        return other

    def with_terms(self, terms: Sequence[Term]) -> "Translator":
        """The translator with these terms, which win over those of its glossary, in addition."""
        languages = self.source_lang, self.target_lang
        return self.with_glossary(Glossary(terms, languages, behind=self.planner.glossary))

    def retrying(self) -> "Translator":
        """The translator that translates a line which looks wrong again, by a wider search, and keeps the
        better translation. Its first result comes when all lines are done.
        """
        other, second = copy.copy(self), copy.copy(self)
        second.decode = wider(self.decode)
        other._second = second
        return other

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

    def _set_direction(self, direction: tuple[str, str]) -> None:
        self.source_lang, self.target_lang = direction
        if self._second is not None:
            self._second = copy.copy(self._second)
            self._second.glossary, self._second.memory = self.glossary, self.memory
            self._second._set_direction(direction)
        self._is_natural = all(map(is_natural, direction))
        glossary = self.glossary if self.glossary and self.glossary.languages == direction else None
        memory = self.memory if self.memory and self.memory.languages == direction else None
        self.planner = Planner(
            self.tokenizer, self._configs, self.engine.max_positions, direction, glossary, memory
        )

    def encode_src(self, lines: Sequence[str], tag: str | None = None) -> list[Ids]:
        """Piece ids of whole lines, after the control pieces: the target language if the model needs it, and
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
        """Most pieces of a source with EOS; longer ones are divided."""
        return self.planner.max_src_length

    @property
    def max_positions(self) -> int | None:
        """Most pieces of a side the model has positions for, EOS counted; None if there is no limit."""
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
        glossary: str | Path | None = None,
        memory: str | Path | None = None,
    ) -> "Translator":
        """The translator in a run's folder, an exported one or a public model's; `decode` changes settings of
        its search (`{"beam": 1}`), `glossary` is a file of terms, `memory` one of earlier translations. On a
        CPU the engine `auto` searches a run's own export where that translates alike.

        `ensemble` names runs that translate with it. `dtype` is float32 for a run, and what was exported for
        an export.
        """
        if glossary is not None or memory is not None:
            from transformer_mt.memories.memory import read_memory
            from transformer_mt.terms.glossary_file import read_glossary

            if glossary is not None and engine == "auto" and not run_of(folder).is_export:
                engine = "torch"  # which can be made to write what the glossary says
            plain = cls.load(folder, device, dtype, decode, engine, ensemble)
            languages = plain.source_lang, plain.target_lang
            plain = plain if glossary is None else plain.with_glossary(read_glossary(glossary, languages))
            return plain if memory is None else plain.with_memory(read_memory(memory, languages))
        run = run_of(folder)
        config = run.config(decode)
        check_translates(config, folder)
        if run.is_export:
            if engine == "torch":
                raise InputError(
                    f"{folder}: an exported model must have ", Setting("engine", "ctranslate2"),
                    ", but is asked for torch",
                )  # fmt: skip
            if ensemble:
                raise InputError(
                    f"{folder}: an exported model translates alone; name the folders of runs instead"
                )
            return cls._of_export(run, run, config, device, dtype)
        if engine == "ctranslate2":
            raise InputError(
                f"{folder}: must be an exported model, but is a run; export it with: transformer-mt export "
                f"{folder} DIR"
            )
        if engine == "auto" and not ensemble:
            export = export_to_search(run, config.decode, device, dtype)
            if export is not None:
                return cls._of_export(export, run, config, "cpu", None)
        if wrong := next((other for other in ensemble if RunFolder(other).is_export), None):
            raise InputError(f"{wrong}: must be a run's folder to translate in an ensemble, but is an export")
        from transformer_mt.translation.engines.torch_engine import TorchEngine

        runs = [run, *map(run_of, ensemble)]
        configs = [config, *(other.config() for other in runs[1:])]
        searcher = TorchEngine.load(runs, configs, device, dtype or "float32")
        calibration = None if ensemble else Calibration.load(run)
        return cls(searcher, searcher.tokenizer, config, others=configs[1:], calibration=calibration)

    @classmethod
    def _of_export(
        cls, export: RunFolder, run: RunFolder, config: Config, device: str, dtype: str | None
    ) -> "Translator":
        """The translator that searches an export, with all else of the run."""
        from transformer_mt.translation.engines.ctranslate2_engine import CTranslate2Engine

        tokenizer = run.tokenizer()
        engine = CTranslate2Engine.load(export.path, tokenizer, device, dtype)
        return cls(engine, tokenizer, config, calibration=Calibration.load(run))

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
        """One Translation per line, in order. `max_length` is the most pieces of each sentence's translation
        (`decode.max_length`); see Options for the others.

        Raises InputError if the options do not fit the search.
        """
        return list(self.stream(lines, Options(n_best, **options), max_length))

    def stream(
        self, lines: Sequence[str], options: Options = Options(), max_length: int | None = None
    ) -> Iterator[Translation]:
        """One Translation per line, in order, each as soon as it and those before it are done. On a GPU 2,048
        lines and more come together, because other processes divide the work on them.
        """
        if self._second is None:
            yield from self._divided(lines, options, max_length) or self._stream(lines, options, max_length)
            return
        self._second.check(options)
        results = list(self._stream(lines, options, max_length))
        wrong = [i for i, result in enumerate(results) if looks_wrong(result)]
        again = self._second.stream([lines[i] for i in wrong], options.of_lines(wrong), max_length)
        for i, second in zip(wrong, list(again)):
            results[i] = better(results[i], second)
        yield from results

    def _divided(
        self, lines: Sequence[str], options: Options, max_length: int | None
    ) -> Iterator[Translation] | None:
        """The same by other processes, which divide the lines among them; None where that does not pay."""
        has_own = options.prefixes or not (options.protect is None or isinstance(options.protect, str))
        if isinstance(lines, str) or has_own:
            return None
        count = num_workers(self.engine, len(lines))

        def translate(engine: Engine, part: slice) -> list[Translation]:
            return list(self.with_engine(engine)._stream(lines[part], options, max_length))

        return translate_in_workers(self.engine, translate, len(lines), count) if count > 1 else None

    def _stream(
        self, lines: Sequence[str], options: Options, max_length: int | None
    ) -> Iterator[Translation]:
        """The same by the first search alone."""
        if isinstance(lines, str):
            raise InputError("lines must be a list of sentences, but are one text; give [text]")
        least = max(1, self.decode.min_length)
        if max_length is not None and max_length < least:
            raise InputError(f"max_length must be at least {least}, but is {max_length}")
        settings = self.decode.model_copy(update={"max_length": max_length}) if max_length else self.decode
        self.check(options)
        if options.prefixes is not None and len(options.prefixes) != len(lines):
            raise InputError(
                f"there must be one prefix per line ({len(lines)}), but there are {len(options.prefixes)}"
            )
        usual = settings.protect_usual and self._is_natural
        protected = options.protected(len(lines), usual)
        if protected is not None and len(protected) != len(lines):
            raise InputError(
                f"there must be one pattern per line ({len(lines)}), but there are {len(protected)}"
            )
        planned = self.planner.lines(lines, options.prefixes, settings, protected, options.tag)
        units = [unit for line in planned for unit in line.units]
        in_order = LinesInOrder(planned)
        yield from self._results(in_order, options)  # blank lines at the beginning
        lost: list[int] = []
        search = UnitSearch(self.engine, self.tokenizer, self.planner, settings, options)
        for number, translated in search.results(units):
            if translated is None:
                lost.append(number)
            else:
                in_order.add(number, translated)
            yield from self._results(in_order, options)
        around = search.around([units[number] for number in lost])
        for number, translated in zip(lost, around):
            in_order.add(number, translated)
        yield from self._results(in_order, options)

    def _results(self, in_order: LinesInOrder, options: Options) -> Iterator[Translation]:
        """The results of the lines that are done."""
        for line in in_order.done():
            result = line_result(
                line,
                options.n_best,
                self.planner.splitter,
                self.target_lang,
                self._is_natural,
                self.decode.match_ends,
            )
            result = self._with_confidence(result)
            result = self._aligned(result, line) if options.align else result
            if self.decode.match_ends:  # two texts may have become one
                result = replace(result, n_best=each_once(result.n_best))
            yield result

    @property
    def searched(self) -> str:
        """The search in a few words: "beam 5"."""
        drawn = f"{self.decode.samples} samples"
        how = {
            "beam": f"beam {self.decode.beam}",
            "sample": drawn,
            "mbr": f"{drawn}, mbr by {self.decode.utility}",
        }
        return how[self.decode.search]

    def check(self, options: Options) -> None:
        """InputError, before any work, if the options do not fit the search or one another."""
        self.engine.check(self.decode)
        options.check(self.decode)
        if self._second is not None:
            self._second.check(options)
        if options.tag is not None:
            self.tokenizer.tag_id(options.tag)

    def _with_confidence(self, result: Translation) -> Translation:
        if self.calibration is None or not result.tokens:
            return result
        confidence = self.calibration.confidence(result.log_prob, result.num_pieces)
        low = ["low_confidence"] if confidence < self.calibration.low else []
        return replace(result, confidence=round(confidence, 4), flags=[*result.flags, *low])

    def _aligned(self, result: Translation, line: TranslatedLine) -> Translation:
        """The result with alignments: positions count over the pieces of all units."""
        from transformer_mt.translation.line_alignment import LineAlignment  # NumPy takes time to import

        searched = [unit for translated in line.units for unit in translated.searched]
        ranks = range(len(result.n_best))
        pairs = [
            (one.unit.src, ids_of(self.tokenizer, one.candidates[rank])) for rank in ranks for one in searched
        ]
        attentions = self.cross_attention(pairs)
        source_tokens: list[str] = []
        alignment: list[int] = []
        for (src, _), rows in zip(pairs, attentions[: len(searched)]):  # of the best candidate
            alignment += [len(source_tokens) + max(range(len(row)), key=row.__getitem__) for row in rows]
            source_tokens += self.tokenizer.pieces_src(src)
        n_best = []
        for rank, candidate in enumerate(result.n_best):
            own = slice(rank * len(searched), (rank + 1) * len(searched))
            aligned = LineAlignment(self.tokenizer, searched, pairs[own], attentions[own], self.target_lang)
            n_best.append(
                replace(candidate, aligned=aligned.of(line, result.source, candidate.translation, rank))
            )
        return replace(result, n_best=n_best, source_tokens=source_tokens, alignment=alignment)
