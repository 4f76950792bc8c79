"""The counts of the server's work, in Prometheus's form."""

import asyncio
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer_mt.companions.serving.directions import Directions
from transformer_mt.errors import InputError


class Metrics:
    """Counts requests; an ASGI middleware."""

    def __init__(self, app: ASGIApp, directions: Directions, paths: frozenset[str]) -> None:
        """Requests to other `paths` are counted together, as `other`."""
        try:
            import prometheus_client
        except ImportError:
            raise InputError("this needs prometheus-client: pip install 'transformer-mt[serve]'") from None
        self._app, self._directions, self._paths = app, directions, paths
        self._library, self._registry = prometheus_client, prometheus_client.CollectorRegistry()
        self._requests = prometheus_client.Counter(
            "transformer_mt_requests", "Answered requests", ["path", "status"], registry=self._registry
        )
        self._seconds = prometheus_client.Histogram(
            "transformer_mt_request_seconds", "Seconds from a request to its answer", ["path"],
            registry=self._registry,
        )  # fmt: skip
        of_model = ["source", "target"]
        self._waiting = prometheus_client.Gauge(
            "transformer_mt_lines_in_work",
            "Lines that wait or are translated",
            of_model,
            registry=self._registry,
        )
        self._lines = prometheus_client.Gauge(
            "transformer_mt_lines_translated", "Lines translated since the start", of_model,
            registry=self._registry,
        )  # fmt: skip
        self._memory = prometheus_client.Gauge(
            "transformer_mt_model_bytes", "Bytes of memory of a model; 0 while it is not loaded", of_model,
            registry=self._registry,
        )  # fmt: skip

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == "/metrics" and scope["method"] == "GET":
            await self._answer(send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"
        begin, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._requests.labels(path, status).inc()
            self._seconds.labels(path).observe(time.perf_counter() - begin)

    async def _answer(self, send: Send) -> None:
        models = self._directions.models
        # In a thread: the system counts the memory of a large process for a while.
        memory = await asyncio.to_thread(lambda: {pair: model.memory for pair, model in models.items()})
        for gauge in (self._waiting, self._lines, self._memory):
            gauge.clear()  # models may have gone
        for direction, model in models.items():
            self._waiting.labels(*direction).set(model.lines)
            self._lines.labels(*direction).set(model.translated)
            self._memory.labels(*direction).set(memory[direction] or 0)
        body: Any = self._library.generate_latest(self._registry)
        kind = self._library.CONTENT_TYPE_LATEST.encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await send({"type": "http.response.body", "body": body})
