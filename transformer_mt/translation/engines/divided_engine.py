"""Searching with several processes: one asks, each searches its share."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from transformer_mt.config import DecodeConfig
from transformer_mt.ranks import Ranks
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.translation.engines.engine import Engine, RemoteEngine, Request


class DividedEngine(RemoteEngine):
    """The engines of all ranks as one, for rank 0. The others `follow` until rank 0 lets them go."""

    def __init__(self, engine: Engine, ranks: Ranks) -> None:
        super().__init__(engine)
        self._engine, self._ranks = engine, ranks

    def check(self, settings: DecodeConfig) -> None:
        self._engine.check(settings)

    def ask(self, method: str, *arguments: Any) -> Any:
        return getattr(self._engine, method)(*arguments)

    def search(
        self, requests: Sequence[Request], settings: DecodeConfig, n_best: int
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        task: list[Any] = [
            [asdict(request) for request in requests],
            settings.model_dump(mode="json"),
            n_best,
        ]
        self._ranks.broadcast(task)
        for share in self._search_share(*task):
            for i, hypotheses in share:
                yield i, [Hypothesis(**hypothesis) for hypothesis in hypotheses]

    def follow(self) -> None:
        """Search for rank 0."""
        while (task := self._ranks.broadcast(None)) is not None:
            self._search_share(*task)

    def let_go(self) -> None:
        self._ranks.broadcast(None)

    def _search_share(self, requests: list[Any], settings: dict[str, Any], n_best: int) -> list[Any]:
        """Search this rank's share of the requests. Returns the results of all ranks."""
        by_length = sorted(range(len(requests)), key=lambda i: -len(requests[i]["src"]))
        numbers = by_length[self._ranks.rank :: self._ranks.size]
        of_rank = [Request(**requests[i]) for i in numbers]
        hypotheses = (
            self._engine.search(of_rank, DecodeConfig.model_validate(settings), n_best) if of_rank else ()
        )
        return self._ranks.gather([(numbers[i], [asdict(one) for one in best]) for i, best in hypotheses])
