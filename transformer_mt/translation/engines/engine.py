"""The interface of engines (source ids in, hypotheses out), the choice of an engine for a model, and the base
of engines in other processes. Does not import torch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from transformer_mt.config import Config, DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.parts import every_name, load_part
from transformer_mt.search.hypothesis import Hypothesis

if TYPE_CHECKING:  # SentencePiece: `translate --help` imports this module
    from transformer_mt.data.vocabulary.tokenizer import Tokenizer
    from transformer_mt.run_folder import RunFolder

Ids = list[int]


@dataclass(frozen=True)
class EngineRequest:
    """The engine that a call asks for, and what it asks of it."""

    engine: str = "auto"
    """auto, or the name of an engine (parts.py)."""
    device: str = "auto"
    dtype: str | None = None
    """None is float32 for a run, and an export's own type."""
    has_rules: bool = False
    """True if a resource needs a selection of hypotheses, or if the search is repeated with rules; only torch
    can do either.
    """
    has_prefixes: bool = False


USUAL_ENGINE = EngineRequest()


@dataclass(frozen=True)
class Request:
    """One source to translate."""

    src: Ids
    """Without EOS."""
    limit: int
    """Most tokens of a translation, EOS counted."""
    prefix: Ids = field(default_factory=list)
    """The tokens its translation begins with."""
    given: int = 0
    """How many tokens of `prefix` the user gave; the least and the most tokens of a translation are counted
    after them.
    """
    prompt: Ids = field(default_factory=list)
    """The ids that the decoder is given before the first token, such as the language it writes; they are not
    part of the translation. All requests of an engine have prompts of the same length.
    """
    wanted: "Wanted | None" = None
    """What the hypotheses are selected for; only with beam search and an engine that `selects`."""


class Wanted(NamedTuple):
    """What a selection of hypotheses is for."""

    selection: str
    """The name of the part (parts.py)."""
    value: Any
    """What it needs to know of this sentence."""


class Engine:
    """A model that can be searched."""

    name: str
    always: ClassVar[Mapping[str, Any]] = {}
    """The keys of `decode` that its search of a run cannot change, with their values."""
    dtype: str
    """The type of its arithmetic: float32, bfloat16, int8, or default, as exported."""
    max_positions: int | None = None
    """Most positions the engine has; None if only the model limits them."""
    is_on_cpu: bool = True
    selects: bool = False
    """Whether requests may want a selection of hypotheses."""

    @classmethod
    def open(cls, run: "RunFolder", config: Config, request: EngineRequest) -> "Engine | None":
        """Open a run or an export. If the request's engine is `auto`, an engine may return None to leave the
        folder to the next one; torch takes the runs that no other engine takes. An engine takes a run only
        if it is faster than torch and its translations are the same. InputError for a folder or settings
        that it does not support.
        """
        raise NotImplementedError

    def check(self, settings: DecodeConfig) -> None:
        """InputError if the engine does not support the settings."""

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """(index, the `n_best` best hypotheses) of each request, as they are done. No request's result
        depends on the others.
        """
        raise NotImplementedError

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """For each (source, target), without EOS, the log-probability of each target token and of EOS after
        them.
        """
        raise NotImplementedError

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        """For each (source, target), without EOS, how much each target token attends to each source token.
        The layer is the model's `alignment_attention`, read by its `as_alignment`.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class LoadedModel:
    """A model that can be searched."""

    engine: Engine
    tokenizer: "Tokenizer"
    configs: list[Config]
    """Its config; of an ensemble one for each model."""
    run: "RunFolder"


Check = Callable[[DecodeConfig], None]
"""Raises InputError for settings of the search that do not go together with a request."""


def load_model_to_search(
    run: "RunFolder",
    request: EngineRequest,
    decode: Mapping[str, Any] | None = None,
    ensemble: "Sequence[RunFolder]" = (),
    check: Check | None = None,
) -> LoadedModel:
    """Load the model of a run or an export with its engine. By default that is the first engine that opens
    the folder, or torch for a run that no other engine takes. Ensembles are searched by torch.

    Before the model is read, raises InputError if the arguments do not go together or if `check` refuses the
    settings.
    """
    from transformer_mt.run_folder import check_translates

    asked = request.engine
    others = [name for name in every_name("engine") if name != "torch"] if asked == "auto" else []
    if asked not in ("auto", "torch"):
        others = [asked]
        always = load_part("engine", asked).always  # InputError for an engine that is not installed
        decode = {**({} if run.is_export else always), **(decode or {})}
    config = run.config(dict(decode or {}))
    if check is not None:
        check(config.decode)
    check_translates(config, run.path)
    if ensemble and asked not in ("auto", "torch"):
        raise InputError(
            Setting("ensemble"), " requires ", Setting("engine", "torch"), f", but the engine is {asked}"
        )
    if wrong := next((other for other in (run, *ensemble) if ensemble and other.is_export), None):
        raise InputError(f"{wrong}: is an export; an ensemble is searched in the folders of runs")
    for name in [] if ensemble else others:
        if (engine := load_part("engine", name).open(run, config, request)) is not None:
            return LoadedModel(engine, run.tokenizer(), [config], run)
    if run.is_export:
        way = ("leave out ", Setting("engine")) if asked == "torch" else ("no other engine is installed",)
        raise InputError(f"{run}: is an export, which torch cannot search; ", *way)
    configs = [config, *(other.config() for other in ensemble)]
    torch_engine = load_part("engine", "torch")
    engine = torch_engine.load([run, *ensemble], configs, request.device, request.dtype or "float32")
    return LoadedModel(engine, engine.tokenizer, configs, run)


def batches(lengths: Sequence[int], width: int, budget: int) -> Iterator[list[int]]:
    """Batches of indices of similar length, with rows x width x length <= budget. The longest come first, so
    that memory is allocated only once.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        size = max(1, budget // (lengths[order[start]] * width))
        yield order[start : start + size]
        start += size


def token_log_probs(engine: Engine, prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
    """For each (source, target), without EOS, the log-probability of each target token and of EOS after them,
    given the prompt.
    """
    of_pairs = engine.token_log_probs(_with_prompt(prompt, pairs))
    return [log_probs[len(prompt) :] for log_probs in of_pairs] if prompt else of_pairs


def cross_attention(engine: Engine, prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
    """For each (source, target), without EOS, how much each target token attends to each source token."""
    of_pairs = engine.cross_attention(_with_prompt(prompt, pairs))
    return [rows[len(prompt) :] for rows in of_pairs] if prompt else of_pairs


def _with_prompt(prompt: Ids, pairs: Sequence[tuple[Ids, Ids]]) -> Sequence[tuple[Ids, Ids]]:
    return [(src, [*prompt, *tgt]) for src, tgt in pairs] if prompt else pairs


class RemoteEngine(Engine):
    """The base of engines whose model is in other processes."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is the one that answers, or one like it."""
        self.name, self.dtype = engine.name, engine.dtype
        self.max_positions, self.is_on_cpu = engine.max_positions, engine.is_on_cpu
        self.selects = engine.selects

    def ask(self, method: str, *arguments: Any) -> Any:
        """The result of a method of the engine, as a list."""
        raise NotImplementedError

    def check(self, settings: DecodeConfig) -> None:
        """The settings are checked where the engine is."""

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        yield from self.ask("search", list(requests), settings, n_best)

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        return list(self.ask("token_log_probs", list(pairs)))

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        return list(self.ask("cross_attention", list(pairs)))
