"""Searching with several processes: one asks, each searches its share."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from transformer_mt.config import DecodeConfig
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, Ids, Request


class Peers(Protocol):
    """The processes, and what they say to each other: values of JSON."""

    rank: int
    size: int

    def broadcast(self, value: Any) -> Any: ...
    def gather(self, value: Any) -> list[Any]: ...


class DividedEngine:
    """The engines of all peers as one, for rank 0. The others `follow` until rank 0 lets them go."""

    def __init__(self, engine: Engine, peers: Peers) -> None:
        self._engine, self._peers = engine, peers
        self.name, self.dtype = engine.name, engine.dtype
        self.max_positions, self.is_on_cpu = engine.max_positions, engine.is_on_cpu
        self.writes_phrases = engine.writes_phrases

    def check(self, settings: DecodeConfig) -> None:
        self._engine.check(settings)

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        task: list[Any] = [[asdict(request) for request in requests], settings.model_dump(), n_best]
        self._peers.broadcast(task)
        for share in self._search_share(*task):
            for i, hypotheses in share:
                yield i, [Hypothesis(**hypothesis) for hypothesis in hypotheses]

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        return self._engine.token_log_probs(pairs)

    def cross_attention(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[list[float]]]:
        return self._engine.cross_attention(pairs)

    def follow(self) -> None:
        """Search for rank 0."""
        while (task := self._peers.broadcast(None)) is not None:
            self._search_share(*task)

    def let_go(self) -> None:
        self._peers.broadcast(None)

    def _search_share(self, requests: list[Any], settings: dict[str, Any], n_best: int) -> list[Any]:
        """The results of all peers."""
        by_length = sorted(range(len(requests)), key=lambda i: -len(requests[i]["src"]))
        numbers = by_length[self._peers.rank :: self._peers.size]
        of_rank = [Request(**requests[i]) for i in numbers]
        hypotheses = (
            self._engine.search(of_rank, DecodeConfig.model_validate(settings), n_best) if of_rank else ()
        )
        return self._peers.gather([(numbers[i], [asdict(one) for one in best]) for i, best in hypotheses])
