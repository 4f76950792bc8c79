"""An engine that another thread or process has, or several: whatever it is asked for is asked there."""

from collections.abc import Iterator, Sequence
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, Ids, Request


class RemoteEngine:
    """The base of such engines."""

    def __init__(self, engine: Engine) -> None:
        """`engine` is the one that answers, or one like it."""
        self.name, self.dtype = engine.name, engine.dtype
        self.max_positions, self.is_on_cpu = engine.max_positions, engine.is_on_cpu
        self.writes_phrases = engine.writes_phrases

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
