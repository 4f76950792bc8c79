"""Searching an exported model with CTranslate2. Imports no torch, because the import takes longer than
translating a sentence.
"""

import ctypes
import importlib.util
import json
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from transformer_mt.errors import InputError, Setting, WorkError
from transformer_mt.messages import say_once
from transformer_mt.processes import usable_cores
from transformer_mt.run_folder import RunFolder
from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, ranked
from transformer_mt.translation.engines.engine import Engine, EngineRequest, Ids, Request

# Settings with which CTranslate2's beam may keep other hypotheses than torch's.
_KEEP_OTHERS = ("min_length", "max_length", "no_repeat_ngram")
SAME_SEARCH = {key: getattr(DecodeConfig(), key) for key in (*_KEEP_OTHERS, "max_length_ratio")}
"""Values with which both engines keep the same hypotheses."""

# Settings of which CTranslate2 supports one value only.
_ONLY = {"search": "beam", "length_penalty_form": "plain", "banned": [], "rules": []}

# Larger batches are no faster on a CPU, and the cores would finish their last ones at different times.
_TOKENS_OF_A_CORE = 1024

_LEAST_POSITIONS = 2  # a token and the end of the sentence
# Results whose tokens are scored again in one call.
_SCORED_TOGETHER = 64

# Seconds between checks whether a batch is done: each check takes time from a worker.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.01


def import_ctranslate2() -> Any:
    """The library; InputError says which extra brings it."""
    try:
        import ctranslate2
    except ImportError as error:
        raise InputError(
            f"this needs CTranslate2: pip install 'transformer-mt[ctranslate2]' ({error})"
        ) from None
    return ctranslate2


def check_settings(settings: DecodeConfig) -> None:
    """InputError, one line per setting, if CTranslate2 does not support the search."""
    parts: list[str | Setting] = []
    for key, value in _ONLY.items():
        if (setting := getattr(settings, key)) != value:
            parts += [
                "\n", Setting(f"decode.{key}"), f" must be {value!r} with ", Setting("engine", "ctranslate2"),
                f", but is {setting!r}; translate with the run's folder instead",
            ]  # fmt: skip
    if settings.beam > 1 and "stop_early" in settings.model_fields_set and not settings.stop_early:
        parts += [
            "\n", Setting("decode.stop_early"), " must be true with ", Setting("engine", "ctranslate2"),
            ", but is False; leave it out, or translate with the run's folder instead",
        ]  # fmt: skip
    if parts:
        raise InputError(*parts[1:])


def supported_settings(settings: DecodeConfig) -> tuple[DecodeConfig, list[str]]:
    """The settings, with supported values for the unsupported ones, and the names of the changed settings."""
    missing = [key for key, value in _ONLY.items() if getattr(settings, key) != value]
    of_sampling = {"samples", "temperature", "top_k", "top_p"} if "search" in missing else set()
    kept = settings.model_dump(exclude={*missing, *of_sampling})
    return DecodeConfig.model_validate(kept), missing


def choose_device_name(device: str, dtype: str | None) -> str:
    """CTranslate2's name of the device: cpu, cuda or cuda:N. InputError if there is no such device, or if it
    does not support `dtype`.
    """
    library = import_ctranslate2()
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not (index.isdecimal() and kind == "cuda")):
        raise InputError(
            Setting("device"),
            " must be auto, cpu, cuda or cuda:N with ",
            Setting("engine", "ctranslate2"),
            f", but is {device}",
        )
    gpus = library.get_cuda_device_count()
    if kind != "cpu" and gpus and not _load_cublas():
        problem = (
            f"CTranslate2 {library.__version__} needs {_CUBLAS} to use the GPU: pip install "
            "'transformer-mt[ctranslate2-cuda]'"
        )
        if kind == "cuda":
            raise InputError(problem)
        say_once(f"note: translating on the CPU, because {problem}")
        gpus = 0
    if kind == "auto":
        kind = "cuda" if gpus else "cpu"
    if kind == "cuda" and int(index or 0) >= gpus:
        raise InputError(f"there is no {device}: the number of CUDA GPUs here is {gpus}; use cpu")
    kinds = library.get_supported_compute_types(kind)
    if dtype is not None and dtype not in kinds:
        raise InputError(
            Setting("dtype"), f" must be one of {', '.join(sorted(kinds))} on this {kind}, but is {dtype}"
        )
    return f"{kind}:{index}" if index else kind


# CTranslate2 loads cuBLAS of CUDA 12 by this name, whichever CUDA version torch was built for.
_CUBLAS = "libcublas.so.12"


def _load_cublas() -> bool:
    """Load cuBLAS, from the system or from NVIDIA's Python package, so that CTranslate2 finds it. False if
    neither has it.
    """
    candidates, spec = [[_CUBLAS]], importlib.util.find_spec("nvidia")
    for package in (spec and spec.submodule_search_locations) or ():
        candidates.append([f"{package}/cublas/lib/{name}" for name in ("libcublasLt.so.12", _CUBLAS)])
    for names in candidates:
        with suppress(OSError):
            for name in names:
                ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            return True
    return False


class CTranslate2Engine(Engine):
    """An exported model. Each core runs one single-threaded worker: synchronising several threads in a step
    takes longer than it saves (docs/measurements/performance.md).
    """

    name = "ctranslate2"
    always: ClassVar[dict[str, Any]] = {"stop_early": True}

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        device: str,
        dtype: str,
        max_positions: int,
        end: Sequence[str] = (),
        target_pieces: int | None = None,
    ) -> None:
        """`end` are the tokens that the model expects after each source. `target_pieces` is the number of
        target tokens that the model has, if the vocabulary has more; it never writes the others.
        """
        self._end = end
        self.max_positions = max_positions
        self.folder, self.device, self.dtype = folder, device, dtype
        self.is_on_cpu = device == "cpu"
        self.src_pieces = tokenizer.all_pieces_src
        self.tgt_pieces = tokenizer.all_pieces_tgt
        self.tgt_ids = {piece: i for i, piece in enumerate(self.tgt_pieces)}
        self._never = (PAD, UNK, BOS, *tokenizer.never_written)
        if target_pieces is not None:
            foreign = tokenizer.numberings[-1].foreign_ids()
            self._never = tuple(i for i in self._never if foreign[i] < target_pieces)
        self._library_model: Any = None
        self._workers = 0

    @classmethod
    def open(cls, run: RunFolder, config: Config, request: EngineRequest) -> "CTranslate2Engine | None":
        """The engine of an export, or of a run that contains one. With the engine `auto`, None if torch would
        translate the run faster, or could translate it differently.
        """
        device, dtype = request.device, request.dtype
        export: RunFolder | None = run
        if not run.is_export and request.engine == "auto":
            if (export := _faster_export(run, config.decode, request)) is None:
                return None
            device, dtype = "cpu", None
        elif not run.is_export:
            check_settings(config.decode)
            choose_device_name(device, dtype)
            export = run.own_export
        if export is None:
            raise InputError(
                f"{run}: is a run without an export for CTranslate2; export it with: "
                f"transformer-mt export {shlex.quote(str(run))} DIR"
            )
        return cls.load(export.path, run.tokenizer(), device, dtype)

    @classmethod
    def load(
        cls, folder: Path, tokenizer: Tokenizer, device: str = "auto", dtype: str | None = None
    ) -> "CTranslate2Engine":
        """Load the export in `folder`. `dtype` is the type of its arithmetic, by default the exported type if
        the device supports it.
        """
        kind = choose_device_name(device, dtype)
        try:
            facts = json.loads((folder / "export.json").read_text(encoding="utf-8"))
            positions = int(facts["positions"])
            if positions < _LEAST_POSITIONS:
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(f"{folder}: must hold a whole export.json; export it again") from None
        end = [tokenizer.all_pieces_src[EOS]] if facts.get("source_end") else []
        return cls(folder, tokenizer, kind, dtype or "default", positions, end, facts.get("target_pieces"))

    def check(self, settings: DecodeConfig) -> None:
        check_settings(settings)

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        return self._search(requests, settings, min(n_best, settings.beam)) if requests else iter(())

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        sources = [self._source(src) for src, _ in pairs]
        targets = [[self.tgt_pieces[i] for i in tgt] for _, tgt in pairs]
        results = self._model(len(pairs)).score_batch(
            sources, targets, max_batch_size=4096, batch_type="tokens", max_input_length=0
        )
        return [result.log_probs for result in results]

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        sources = [self._source(src) for src, _ in pairs]
        targets = [[self.tgt_pieces[i] for i in tgt] for _, tgt in pairs]
        weights: list[list[list[float]]] = [[] for _ in pairs]
        by_length: dict[int, list[int]] = {}
        for i, target in enumerate(targets):
            by_length.setdefault(len(target), []).append(i)
        for length, rows in by_length.items():  # each must be decoded to exactly its length
            results = self._model(1).translate_batch(
                [sources[i] for i in rows],
                [targets[i] for i in rows],
                beam_size=1,
                return_attention=True,
                max_decoding_length=max(1, length),
                max_batch_size=_SCORED_TOGETHER,
                max_input_length=0,
            )
            for i, result in zip(rows, results):
                weights[i] = [row[: len(pairs[i][0])] for row in result.attention[0][:length]]
        return weights

    def _search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        penalty = LengthPenalty(settings.length_penalty)
        never = [[self.tgt_pieces[token]] for token in self._never]
        # When CTranslate2 forbids or forces tokens, its scores differ from ours, so all of the beam is scored
        # and ranked again.
        ruled = bool(settings.min_length or settings.no_repeat_ngram)
        # Without a length penalty CTranslate2 stops when the requested number of hypotheses has ended; only
        # the best of them is reliable, so request the whole beam.
        early = n_best > 1 and not settings.length_penalty
        given = [len(r.prompt) + len(r.prefix) for r in requests]
        width = settings.beam if ruled or early or any(given) else n_best
        unscored: list[tuple[int, Request, list[Ids]]] = []
        again: list[int] = []
        for i, result in self._asked(requests, range(len(requests)), settings, width):
            request, ids = requests[i], self._ids(result, requests[i])
            # CTranslate2 may write tokens that have no text, and it stops at the longest limit in the group.
            forbidden = any(token in tokens for tokens in ids for token in self._never)
            stopped = any(len(tokens) > request.limit or tokens[-1:] != [EOS] for tokens in ids)
            # Greedy search writes the same tokens with any limit, so it needs no retry
            if forbidden or (stopped and settings.beam > 1):
                again.append(i)
            elif ruled or request.prompt or request.prefix or stopped:
                unscored.append((i, request, _within(ids, request.limit)))
                if len(unscored) == _SCORED_TOGETHER:
                    yield from self._scored(unscored, penalty, n_best)
                    unscored = []
            else:
                log_probs = [score * penalty(len(tokens)) for score, tokens in zip(result.scores, ids)]
                yield i, _ranked(ids, log_probs, penalty)[:n_best]
        for i, result in self._asked(requests, again, settings, settings.beam, never):
            ids = self._ids(result, requests[i])
            unscored.append((i, requests[i], _within(ids, requests[i].limit)))
        for begin in range(0, len(unscored), _SCORED_TOGETHER):
            yield from self._scored(unscored[begin : begin + _SCORED_TOGETHER], penalty, n_best)

    def _asked(
        self,
        requests: Sequence[Request],
        numbers: Iterable[int],
        settings: DecodeConfig,
        n_best: int,
        suppressed: list[list[str]] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Results by request index; `suppressed` marks a retry. CTranslate2 has one limit per group of
        requests, and a search that does not end continues up to it. So at first the limits in a group
        differ by less than a factor of 2; in a retry they are equal.
        """
        groups: dict[tuple[int, int], list[int]] = {}
        for i in numbers:
            limit = requests[i].limit
            given = requests[i].given if settings.min_length else 0  # a group has one minimum length, too
            groups.setdefault((limit.bit_length() if suppressed is None else limit, given), []).append(i)
        lengths = [len(requests[i].src) + 1 for group in groups.values() for i in group]
        model, most = self._model(len(lengths)), settings.batch_budget() // settings.beam
        if self.device == "cpu":
            most = min(most, _TOKENS_OF_A_CORE, sum(lengths) // self._workers)
        promises: dict[int, Any] = {}
        for group in groups.values():
            chosen = [requests[i] for i in group]
            promises |= zip(group, self._ask(model, chosen, settings, n_best, most, suppressed))
        for i in sorted(promises):
            yield i, _result(promises[i])

    def _scored(
        self, outputs: list[tuple[int, Request, list[Ids]]], penalty: LengthPenalty, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of some requests with the probabilities of the model, all scored in one call."""
        pairs = [
            (request.src, [*request.prompt, *tokens[:-1]])
            for _, request, whole in outputs
            for tokens in whole
        ]
        scores = iter(self.token_log_probs(pairs) if pairs else [])
        for i, request, whole in outputs:
            log_probs = [sum(next(scores)[len(request.prompt) :]) for _ in whole]
            yield i, _ranked(whole, log_probs, penalty)[:n_best]

    def _source(self, src: Ids) -> list[str]:
        return [*(self.src_pieces[i] for i in src), *self._end]

    def _ids(self, result: Any, request: Request) -> list[list[int]]:
        begin = len(request.prompt)
        return [[self.tgt_ids[piece] for piece in pieces[begin:]] for pieces in result.hypotheses]

    def _ask(
        self,
        model: Any,
        requests: Sequence[Request],
        settings: DecodeConfig,
        n_best: int,
        most: int,
        suppressed: list[list[str]] | None,
    ) -> Sequence[Any]:
        """CTranslate2's asynchronous results, in batches of at most `most` source tokens."""
        limit = max(r.limit for r in requests)
        promises: Sequence[Any] = model.translate_batch(
            [self._source(r.src) for r in requests],
            [[self.tgt_pieces[i] for i in (*r.prompt, *r.prefix)] for r in requests]
            if any(r.prompt or r.prefix for r in requests)
            else None,
            max_batch_size=max(most, *(len(r.src) + 1 for r in requests)),
            batch_type="tokens",
            asynchronous=True,
            beam_size=settings.beam,
            num_hypotheses=n_best,
            length_penalty=settings.length_penalty,
            no_repeat_ngram_size=settings.no_repeat_ngram,
            min_decoding_length=settings.min_length
            and settings.min_length + len(requests[0].prompt) + requests[0].given,
            max_decoding_length=limit + len(requests[0].prompt),
            max_input_length=0,
            return_scores=True,
            return_end_token=True,
            suppress_sequences=suppressed,
        )
        return promises

    def _model(self, requests: int) -> Any:
        """CTranslate2's translator with one worker per core, or with one worker for a single request."""
        library = import_ctranslate2()
        workers = usable_cores() if requests > 1 and self.device == "cpu" else 1
        if self._library_model is None or self._workers < workers:
            kind, _, index = self.device.partition(":")
            try:
                self._library_model = library.Translator(
                    str(self.folder), kind, device_index=int(index or 0), compute_type=self.dtype,
                    inter_threads=workers, intra_threads=1, max_queued_batches=-1,  # requests never block
                )  # fmt: skip
            except (RuntimeError, ValueError) as error:
                raise WorkError(
                    f"{self.folder}: CTranslate2 cannot load it: {str(error)[:300]}; export it again"
                ) from None
            self._workers = workers
        return self._library_model


def _faster_export(run: RunFolder, settings: DecodeConfig, request: EngineRequest) -> RunFolder | None:
    """The export in a run's folder, if the search runs on a CPU, where it is faster. None if there is none,
    or if its translations could differ from the run's.
    """
    usual = DecodeConfig()
    if request.device not in ("auto", "cpu") or request.dtype not in (None, "float32"):
        return None
    # After a prefix CTranslate2's beam may keep other hypotheses than torch's.
    if request.has_rules or (request.has_prefixes and settings.beam > 1):
        return None
    if not (settings.stop_early or settings.beam == 1) or supported_settings(settings)[1]:
        return None
    if any(getattr(settings, key) != getattr(usual, key) for key in _KEEP_OTHERS):
        return None
    if settings.max_length_ratio < usual.max_length_ratio:
        return None
    is_one_of_several = int(os.environ.get("WORLD_SIZE", 1)) > 1  # each would use all cores
    if is_one_of_several or importlib.util.find_spec("ctranslate2") is None:
        return None
    export = run.own_export
    # On a Mac torch may find a GPU, too.
    if export is not None and request.device == "auto" and sys.platform == "darwin":
        return None
    if export is not None and request.device == "auto" and import_ctranslate2().get_cuda_device_count():
        return None
    return export


def _ranked(outputs: Sequence[Ids], log_probs: Sequence[float], penalty: LengthPenalty) -> list[Hypothesis]:
    return ranked(
        [
            Hypothesis(tokens=tokens, log_prob=value, score=value / penalty(len(tokens)))
            for tokens, value in zip(outputs, log_probs)
        ]
    )


def _result(promise: Any) -> Any:
    pause = _FIRST_PAUSE
    while not promise.done():
        time.sleep(pause)  # result() would block Ctrl-C
        pause = min(1.2 * pause, _LONGEST_PAUSE)
    try:
        return promise.result()
    except (RuntimeError, ValueError) as error:
        raise WorkError(f"CTranslate2 could not translate: {error}") from None


def _within(ids: Sequence[Ids], limit: int) -> list[Ids]:
    """The outputs; those that do not end within `limit` tokens are cut there and ended with EOS."""
    ended = [len(tokens) <= limit and tokens[-1:] == [EOS] for tokens in ids]
    return [tokens if end else [*tokens[: limit - 1], EOS] for tokens, end in zip(ids, ended)]


def has_exact_int8_products(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """True if CTranslate2's int8 products do not overflow: False for an AMD CPU without VNNI. On Intel's it
    uses MKL, whose products are exact. True where the CPU is not known.
    """
    try:
        words = set(cpuinfo.read_text(encoding="utf-8").split())
    except OSError:
        return True
    return "AuthenticAMD" not in words or "avx2" not in words or bool({"avx512_vnni", "avx_vnni"} & words)


def advice_on_int8(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """What to do if a model in int8 translates differently because its products overflow; else nothing."""
    if has_exact_int8_products(cpuinfo):
        return []
    return [
        "; this CPU has no VNNI, so int8 products overflow: export on a CPU that has it, or set "
        "CT2_USE_MKL=1 in the environment, which makes them exact but slow"
    ]
