"""Lines in, translations out: the same number, in the same order. Whatever engine searches, the promises are made here."""

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.config_file import load_config
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.decoding.engine import Engine, Ids, Request
from transformer_mt.decoding.flags import suspicions
from transformer_mt.decoding.hypothesis import Hypothesis
from transformer_mt.decoding.mbr import expected_utilities
from transformer_mt.decoding.protect import compile_pattern, rejoin, spans, survived
from transformer_mt.decoding.segments import joiner, split_text
from transformer_mt.decoding.translation import Candidate, Options, Translation
from transformer_mt.errors import InputError

if TYPE_CHECKING:
    from transformer_mt.model.interface import TranslationModel


@dataclass(frozen=True)
class _Part:
    """A part of a line that is translated in one piece."""

    src: Ids
    limit: int


class Translator:
    """A trained model with its vocabulary and the settings of its search."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer,
        config: Config,
        decode: DecodeConfig | None = None,
        others: Sequence[Config] = (),
    ) -> None:
        """`others` are the configs of the other models of an ensemble."""
        self.engine, self.tokenizer, self.decode = engine, tokenizer, decode or config.decode
        configs = [config, *others]
        self.max_src_length = min(c.data.max_length for c in configs)
        """Longer sources, in pieces with EOS, are split."""
        self.max_positions = min(
            (c.data.max_length for c in configs if c.model.counts_places), default=engine.max_positions
        )
        """Most pieces of a side the model has positions for, end-of-sentence counted; None if there is no end."""
        self.target_lang = config.data.target_lang
        self.joiner = joiner(self.target_lang)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str = "auto",
        dtype: str | None = None,
        decode: dict[str, Any] | None = None,
        engine: str = "auto",
        ensemble: Sequence[str | Path] = (),
    ) -> "Translator":
        """The translator in a run's folder or an exported one; `decode` changes settings of its search (`{"beam": 1}`).

        `ensemble` names runs that translate with it. `dtype` is float32 for a run, and what was exported for an export.
        """
        folder = Path(folder)
        config = load_run_config(folder, decode)
        if is_exported(folder):
            if engine == "torch":
                raise InputError(f"{folder}: an exported model must have --engine ctranslate2, but is asked for torch")
            if ensemble:
                raise InputError(f"{folder}: an exported model translates alone; name the folders of runs instead")
            tokenizer = Tokenizer.load(folder)
            from transformer_mt.decoding.ctranslate2_engine import CTranslate2Engine

            return cls(CTranslate2Engine.load(folder, tokenizer, device, dtype), tokenizer, config)
        if engine == "ctranslate2":
            raise InputError(
                f"{folder}: must be an exported model; transformer-mt export {folder} --to ctranslate2 DIR"
            )
        from transformer_mt.decoding.torch_engine import TorchEngine

        folders = [folder, *map(Path, ensemble)]
        configs = [config, *(load_run_config(other) for other in folders[1:])]
        searcher = TorchEngine.load(folders, configs, device, dtype or "float32")
        return cls(searcher, searcher.tokenizer, config, others=configs[1:])

    @classmethod
    def of_config(
        cls, model: "TranslationModel", tokenizer: Tokenizer, config: Config, decode: DecodeConfig | None = None
    ) -> "Translator":
        """The translator of a model that was built from `config`."""
        from transformer_mt.decoding.torch_engine import TorchEngine

        return cls(TorchEngine(model, tokenizer), tokenizer, config, decode)

    def translate(
        self, lines: Sequence[str], n_best: int = 1, max_length: int | None = None, **options: Any
    ) -> list[Translation]:
        """One Translation a line, in order. `max_length` bounds each translation's pieces; see Options for the others.

        Raises InputError if the options do not fit the search.
        """
        return list(self.stream(lines, Options(n_best, **options), max_length))

    def stream(
        self, lines: Sequence[str], options: Options = Options(), max_length: int | None = None
    ) -> Iterator[Translation]:
        """One Translation a line, in order, each as soon as it and those before it are done."""
        if isinstance(lines, str):
            raise InputError("lines must be a list of sentences, but are one text; give [text]")
        settings = self.decode.model_copy(update={"max_length": max_length}) if max_length else self.decode
        self.check(options)
        if options.prefixes is not None and len(options.prefixes) != len(lines):
            raise InputError(f"there must be a prefix a line, but there are {len(options.prefixes)} for {len(lines)}")
        pattern = compile_pattern(options.protect) if options.protect else None
        parts = self._parts(lines, settings)
        prefixes = self.tokenizer.encode_tgt(options.prefixes) if options.prefixes else [[] for _ in lines]
        requests, owners = [], []
        for line, (own, prefix) in enumerate(zip(parts, prefixes)):
            if own and prefix:  # what is given does not count as written
                own[0] = replace(own[0], limit=min(own[0].limit + len(prefix), self.max_positions or sys.maxsize))
            for k, part in enumerate(own):
                requests.append(Request(part.src, part.limit, prefix if k == 0 else []))
                owners.append((line, k))
        found: list[list[list[Hypothesis]]] = [[[]] * len(own) for own in parts]
        missing = [len(own) for own in parts]
        results: list[Translation | None] = [None] * len(lines)
        shown = 0

        def finish(line: int) -> None:
            result = self._result(lines[line], parts[line], found[line], options)
            if pattern and parts[line]:
                prefix = options.prefixes[line] if options.prefixes else ""
                result = self._protected(result, pattern, prefix, options.n_best, max_length)
            results[line] = result

        for line in (line for line, count in enumerate(missing) if not count):
            finish(line)
        wanted = (
            settings.samples if settings.search == "mbr" else options.n_best
        )  # mbr chooses from all that were drawn
        searched = self.engine.search(requests, settings, wanted) if requests else iter(())
        while True:
            while shown < len(lines) and (result := results[shown]) is not None:
                results[shown] = None
                shown += 1
                yield result
            if (next_found := next(searched, None)) is None:
                return
            (line, k), hypotheses = owners[next_found[0]], next_found[1]
            found[line][k] = hypotheses
            missing[line] -= 1
            if not missing[line]:
                finish(line)

    @property
    def searched(self) -> str:
        """The search in a few words: "beam 5"."""
        drawn = f"{self.decode.samples} samples"
        how = {"beam": f"beam {self.decode.beam}", "sample": drawn, "mbr": f"{drawn}, mbr by {self.decode.utility}"}
        return how[self.decode.search]

    def check(self, options: Options) -> None:
        """InputError, before any work, if the options do not fit the search or one another."""
        self.engine.check(self.decode)
        options.check(self.decode)

    def _parts(self, lines: Sequence[str], settings: DecodeConfig) -> list[list[_Part]]:
        """Each line's parts: one, none if there is nothing to translate, several if it is too long for one."""
        encoded = self.tokenizer.encode_src(lines)
        most = self.max_src_length - 1
        result = []
        for line, ids in zip(lines, encoded):
            texts = [ids] if len(ids) <= most else self.tokenizer.encode_src(split_text(line, most, self._count))
            # One character of more pieces than the model takes is cut, because there is nothing smaller.
            result.append([_Part(own[:most], self._limit(len(own[:most]), settings)) for own in texts if own])
        return result

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.encode_src(texts)]

    def _limit(self, src_length: int, settings: DecodeConfig) -> int:
        """Most pieces of a translation, end-of-sentence counted; from the source alone, never from its batch mates."""
        limit = int(settings.max_length_ratio * src_length) + 11
        limit = min(limit, settings.max_length + 1) if settings.max_length else limit
        limit = max(limit, settings.min_length + 1)
        return min(limit, self.max_positions) if self.max_positions else limit

    def _result(self, line: str, parts: list[_Part], found: list[list[Hypothesis]], options: Options) -> Translation:
        """A line's translation, put together from the hypotheses of its parts."""
        problems, flags = [], []
        if not parts:
            empty = Candidate("", 0.0, 0.0, [])
            return Translation(line, "", 0.0, 0.0, [], ["there is nothing to translate"], ["empty"], [empty])
        if len(parts) > 1:
            flags.append("split")
            problems.append(f"the source was translated in {len(parts)} parts: it is too long for one")
        if self.decode.search == "mbr":
            found = [self._by_utility(hypotheses) for hypotheses in found]
        candidates = [self._candidates(hypotheses) for hypotheses in found]
        for k, (part, own) in enumerate(zip(parts, candidates)):
            if not own:
                flags.append("none")
                problems.append("the rules of the search leave no translation")
                candidates[k] = [Candidate("", 0.0, 0.0, [])]
            elif self._was_cut(part, found[k][0]):
                flags.append("cut")
                problems.append(f"the translation was stopped at {part.limit - 1} pieces")
        n_best = [self._join(each) for each in zip(*(own[: options.n_best] for own in candidates))]
        best = n_best[0]
        src_pieces = sum(len(part.src) for part in parts)
        flags = list(dict.fromkeys([*flags, *suspicions(line, best.translation, src_pieces, best.tokens)]))
        result = Translation(
            line, best.translation, best.score, best.log_prob, best.tokens, list(dict.fromkeys(problems)), flags, n_best
        )
        return self._aligned(result, parts, candidates) if options.align else result

    def _was_cut(self, part: _Part, hypothesis: Hypothesis) -> bool:
        """Whether the best hypothesis ended at its limit though the model would rather have gone on."""
        if len(hypothesis.tokens) < part.limit:
            return False
        log_probs = self.engine.token_log_probs([(part.src, hypothesis.tokens[:-1])])[0]
        return log_probs[-1] < math.log(0.5)

    def _candidates(self, hypotheses: list[Hypothesis]) -> list[Candidate]:
        return [
            Candidate(
                self.tokenizer.decode_tgt(hypothesis.tokens[:-1]),
                hypothesis.score,
                hypothesis.log_prob,
                self.tokenizer.pieces_tgt(hypothesis.tokens[:-1]),
            )
            for hypothesis in hypotheses
        ]

    def _by_utility(self, samples: list[Hypothesis]) -> list[Hypothesis]:
        """The samples that differ in their text, by what the others say of them; of alike ones the likeliest."""
        texts = [self.tokenizer.decode_tgt(sample.tokens[:-1]) for sample in samples]
        utilities = expected_utilities(texts, self.decode.utility, self.target_lang)
        first_of: dict[str, Hypothesis] = {}
        for text, utility, sample in zip(texts, utilities, samples):
            first_of.setdefault(text, replace(sample, score=utility))
        return sorted(first_of.values(), key=lambda sample: -sample.score)

    def _join(self, parts: Sequence[Candidate]) -> Candidate:
        """The translations of a line's parts as one; its score is their mean."""
        if len(parts) == 1:
            return parts[0]
        text = self.joiner.join(part.translation for part in parts if part.translation)
        score = sum(part.score for part in parts) / len(parts)
        return Candidate(text, score, sum(p.log_prob for p in parts), [token for p in parts for token in p.tokens])

    def _aligned(self, result: Translation, parts: list[_Part], candidates: list[list[Candidate]]) -> Translation:
        source_tokens: list[str] = []
        alignment: list[int] = []
        targets = [[self.tokenizer.tgt.piece_to_id(piece) for piece in own[0].tokens] for own in candidates]
        for part, places in zip(parts, self.engine.alignments([(p.src, tgt) for p, tgt in zip(parts, targets)])):
            alignment += [len(source_tokens) + place for place in places]
            source_tokens += self.tokenizer.pieces_src(part.src)
        return replace(result, source_tokens=source_tokens, alignment=alignment)

    def _protected(
        self, result: Translation, pattern: re.Pattern[str], prefix: str, wanted: int, max_length: int | None
    ) -> Translation:
        """The candidates that kept what is protected; if the best did not, the stretches between are translated apart."""
        line, parts = result.source, spans(result.source, pattern)
        if not any(span.protected for span in parts):
            return result
        bodies = [span.text.strip() for span in parts if span.translatable]
        if bodies and survived(line, result.translation, pattern):
            kept = [candidate for candidate in result.n_best if survived(line, candidate.translation, pattern)]
            return replace(result, n_best=kept)
        leads = bool(bodies) and parts[0].translatable
        prefixes = [prefix, *[""] * (len(bodies) - 1)] if prefix and leads else None
        results = self.translate(bodies, wanted, max_length, prefixes=prefixes)
        n_best = []
        for rank in range(min((len(r.n_best) for r in results), default=1)):
            each = [result.n_best[rank] for result in results]
            joined = self._join(each) if each else Candidate("", 0.0, 0.0, [])
            text = rejoin(parts, [candidate.translation for candidate in each])
            text = text if leads or not prefix else f"{prefix} {text.lstrip()}"
            n_best.append(Candidate(text, joined.score, joined.log_prob, joined.tokens))
        problems, flags = [], []
        if bodies:
            problems.append("protected text did not survive; what stands between it was translated apart")
            flags.append("apart")
        for result in results:
            problems += result.problems
            flags += result.flags
        best = n_best[0]
        return Translation(
            line, best.translation, best.score, best.log_prob, best.tokens,
            list(dict.fromkeys(problems)), list(dict.fromkeys(flags)), n_best,
        )  # fmt: skip


def is_exported(folder: Path) -> bool:
    """Whether the folder is an export for CTranslate2."""
    return (folder / "model.bin").exists()


def load_run_config(folder: Path, decode: dict[str, Any] | None = None) -> Config:
    """The config of a run's folder, with the given settings of `decode` changed."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; a model is the folder of a run, such as runs/demo")
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder}: must be a run's folder, but holds no config.yaml")
    return load_config(
        folder / "config.yaml", [f"decode.{key}={_yaml(value)}" for key, value in (decode or {}).items()]
    )


def _yaml(value: Any) -> str:
    """A setting as the YAML that reads back as it."""
    import json

    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, str)) else str(value)
