"""Handlers of questions about the server, which models.py answers, and the models for a request."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer_mt.companions.documents.formats import ENDINGS
from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.requests import FileBody, TranslateBody, answer, openapi, page
from transformer_mt.companions.serving.models import Chain, Directions
from transformer_mt.errors import InputError
from transformer_mt.text.languages import language_name

Asked = TypeVar("Asked", TranslateBody, FileBody)
# With at least this confidence, a text counts as already in the target language. One or two words have less.
_SURELY_TARGET = 90.0


def with_known_codes(directions: Directions, body: Asked) -> Asked:
    """The request, with the models' codes for its languages. 503 while there is no model."""
    if not directions.models:
        raise HTTPException(503, "this server has no model yet", {"Retry-After": "10"})
    source, target = directions.known(body.source, body.target)
    return body.model_copy(update={"source": source, "target": target})


def detect_source(directions: Directions, text: str, target: str, is_alone: bool = True) -> dict[str, Any]:
    """The most likely source language; the target language if the text is clearly in it. If the text is
    clearly in a language that no model translates: 400 if it `is_alone`, else that language.
    """
    among = directions.sources_of(target) or directions.sources
    if other := directions.other_language(text, [*among, target]):
        if not is_alone:
            return {"language": other, "confidence": 100.0}
        raise HTTPException(
            400,
            f"source must be {' or '.join(among)} with target {target}, but the text is in "
            f"{language_name(other)} ({other})",
        )
    best = directions.detect(text, [*among, target])[0]
    if best.language == target and best.confidence < _SURELY_TARGET:
        best = directions.detect(text, among)[0]
    return {"language": best.language, "confidence": best.confidence}


def chain_of(directions: Directions, source: str, body: TranslateBody | FileBody) -> Chain:
    """The models for this direction. 400 if neither one model nor two in a row can translate it."""
    try:
        chain = directions.chain(source, body.target)
    except InputError as error:
        raise HTTPException(400, str(error)) from None
    if chain.pivot and body.glossary:
        raise HTTPException(
            400, f"there must be a model from {source} to {body.target} for a glossary, but there is none"
        )
    return chain


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


_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/files.js": ("files.js", "text/javascript"),
}
_HEADERS = {
    # Nothing from elsewhere, and no script or style but its own files.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    return [Route(path, _answer(*named), methods=["GET"]) for path, named in _FILES.items()]


def _answer(name: str, media_type: str) -> Callable[[Request], Coroutine[None, None, Response]]:
    content = files("transformer_mt.companions.serving.http").joinpath("page", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return answer


class InfoRoutes:
    """GET /languages, /models, /frontend/settings, /spec, /docs and /health."""

    def __init__(self, directions: Directions, admission: Admission, suggestions: Path | None) -> None:
        self._directions, self._admission = directions, admission
        self._takes_suggestions = suggestions is not None

    async def languages(self, request: Request) -> Response:
        return answer(self._directions.languages())

    async def models(self, request: Request) -> Response:
        """The models, with their bytes of memory; null while one is not loaded."""
        self._admission.admit_client(request, None)
        models = self._directions.models
        # In a thread: the system counts the memory of a large process for a while.
        memory = await asyncio.to_thread(lambda: {pair: model.memory for pair, model in models.items()})
        return answer([
            {"source": pair[0], "target": pair[1], "name": model.name, "memory": memory[pair]}
            for pair, model in models.items()
        ])  # fmt: skip

    async def settings(self, request: Request) -> Response:
        """The settings that a page of LibreTranslate reads from its server."""
        limits, needs_key = self._admission.limits, self._admission.keys is not None
        target = next((target for _, target in self._directions.models), "en")
        files = [f".{ending}" for ending in ENDINGS] if limits.file_bytes else []
        return answer({
            "charLimit": limits.characters or -1,
            "frontendTimeout": 500,
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "suggestions": self._takes_suggestions,
            "filesTranslation": bool(files),
            "supportedFilesFormat": files,
            "fileBytes": limits.file_bytes,
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": target, "name": language_name(target)},
            },
        })  # fmt: skip

    async def spec(self, request: Request) -> Response:
        return answer(openapi())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(page())

    async def health(self, request: Request) -> Response:
        return answer({"status": "ok"})
