"""The interface of engines: source ids in, hypotheses out; engines in other processes, and of several ranks.
Needs no torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from transformer_mt.config import DecodeConfig
from transformer_mt.search.hypothesis import Hypothesis

Ids = list[int]


@dataclass(frozen=True)
class EngineRequest:
    """The engine that a call asks for, and what it asks of it."""

    engine: str = "auto"
    """auto, torch or ctranslate2."""
    device: str = "auto"
    dtype: str | None = None
    """None is float32 for a run, and an export's own type."""
    has_rules: bool = False
    """A resource wants a selection of hypotheses, or the search is done again with rules: torch alone does
    that.
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
    """The number of them that the user gave: the least and the most tokens of a translation count from there.
    """
    prompt: Ids = field(default_factory=list)
    """The ids that the decoder is given before the first token, such as the language it writes; no part of
    the translation. Requests of one engine have prompts of one length.
    """
    wanted: "Wanted | None" = None
    """What the hypotheses are selected for; only with beam search, and of an engine that `selects`."""


class Wanted(NamedTuple):
    """What a selection of hypotheses is for."""

    selection: str
    """The name of the part (parts.py)."""
    value: Any
    """What it needs to know of this sentence."""


class Engine(Protocol):
    """A model that can be searched."""

    name: str
    dtype: str
    """The type of its arithmetic: float32, bfloat16, int8, or default, as exported."""
    max_positions: int | None
    """Most positions the engine has; None if only the model limits them."""
    is_on_cpu: bool
    selects: bool
    """Whether requests may want a selection of hypotheses."""

    def check(self, settings: DecodeConfig) -> None:
        """InputError if the engine does not support the settings."""
        ...

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """(index, the `n_best` best hypotheses) of each request, as they are done. No request's result
        depends on the others.
        """
        ...

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """For each (source, target), without EOS, the log-probability of each target token and of EOS after
        them.
        """
        ...

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        """For each (source, target), without EOS, how much each target token attends to each source token.
        The layer is the model's `alignment_attention`, read by its `as_alignment`.
        """
        ...


def batches(lengths: Sequence[int], width: int, budget: int) -> Iterator[list[int]]:
    """Indices of like length, the longest first so that memory is asked for once: rows x width x length <=
    budget.
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


class RemoteEngine:
    """The base of such engines."""

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
