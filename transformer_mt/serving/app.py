"""The LibreTranslate API over a server's models."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from transformer_mt.documents.formats import ENDINGS, KEEP_SOURCES, format_of
from transformer_mt.documents.read import Document, read_document
from transformer_mt.errors import InputError
from transformer_mt.serving.batcher import QueueFullError
from transformer_mt.serving.directions import Chain, Directions
from transformer_mt.serving.files import TranslatedFiles
from transformer_mt.serving.limits import ApiKeys, Limits, RequestRate
from transformer_mt.serving.metrics import Metrics
from transformer_mt.serving.page import page_routes
from transformer_mt.serving.requests import (
    DetectBody,
    FileBody,
    SuggestBody,
    TranslateBody,
    parse,
    parse_file,
    read_body,
)
from transformer_mt.serving.spec import openapi, page
from transformer_mt.serving.texts import (
    line_details,
    translate_document,
    translate_html,
    translate_texts,
    without_markup,
)
from transformer_mt.text.languages import language_name

T = TypeVar("T")
Asked = TypeVar("Asked", TranslateBody, FileBody)
_LOG = logging.getLogger("transformer_mt.serving")
# Wrong keys of one address, where requests have no limit.
_GUESSES_PER_MINUTE = 60
_FILES_AT_ONCE, _UPLOADS = 2, 20
"""Files that are translated at a time, and that are in memory; the others wait."""
_FORM_BYTES = 10_000
"""What a form with a file may have besides the file."""
_DETECTED_CHARACTERS = 10_000
"""Characters of a file by which its language is found."""


def build_app(
    directions: Directions,
    limits: Limits,
    keys: ApiKeys | None = None,
    origins: Sequence[str] = (),
    suggestions: Path | None = None,
    metrics: bool = False,
) -> Starlette:
    """The ASGI application. Pages of the `origins` may use it from a browser (CORS). Better translations that
    are suggested become lines of the file of `suggestions`. `metrics` are answered at /metrics.
    """
    api = _Api(directions, limits, keys, suggestions)
    routes = [
        Route("/translate", api.translate, methods=["POST"]),
        Route("/details", api.details, methods=["POST"]),
        Route("/translate_file", api.translate_file, methods=["POST"]),
        Route("/download_file/{name}", api.download_file, methods=["GET"], name="download_file"),
        Route("/suggest", api.suggest, methods=["POST"]),
        Route("/frontend/settings", api.settings, methods=["GET"]),
        Route("/detect", api.detect, methods=["POST"]),
        Route("/spec", api.spec, methods=["GET"]),
        Route("/docs", api.docs, methods=["GET"]),
        Route("/languages", api.languages, methods=["GET"]),
        Route("/health", api.health, methods=["GET"]),
    ]
    cors = Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"],
                      allow_headers=["Content-Type", "Authorization"])  # fmt: skip
    counted = Middleware(Metrics, directions=directions, paths=frozenset(route.path for route in routes))
    return Starlette(
        routes=[*routes, *page_routes()],
        middleware=[*[counted] * metrics, *[cors] * bool(origins)],
        exception_handlers={HTTPException: _error_response, ClientDisconnect: _client_disconnected},
    )


# From this confidence on a text is taken to be in the target language already. A word or two have less.
_SURELY_TARGET = 90.0


class _Api:
    """The handlers of the routes."""

    def __init__(
        self, directions: Directions, limits: Limits, keys: ApiKeys | None, suggestions: Path | None
    ) -> None:
        self._directions, self._limits, self._keys = directions, limits, keys
        self._suggestions, self._files = suggestions, TranslatedFiles()
        self._uploads, self._file_turns = asyncio.Semaphore(_UPLOADS), asyncio.Semaphore(_FILES_AT_ONCE)
        self._rate = RequestRate()

    async def translate(self, request: Request) -> Response:
        asked: TranslateBody = await self._admit(request, TranslateBody)
        if asked.format == "text":
            self._check_lines(asked.texts)
        detected = []
        sources = [asked.source] * len(asked.texts)
        if asked.source == "auto":
            texts = asked.texts
            if asked.format == "html":
                # In a thread: a document can take longer than other requests should wait.
                texts = [await self._or_http_error(asyncio.to_thread(without_markup, text)) for text in texts]
            detected = [self._detect_source(text, asked.target) for text in texts]
            sources = [found["language"] for found in detected]
        chains = [self._chain(source, asked) for source in sources]
        if asked.format == "html":
            # Documents one after the other: together they may have more texts than may ever wait.
            work = _one_by_one([self._page(chain, text, asked) for chain, text in zip(chains, asked.texts)])
        else:
            work = self._texts(chains, asked)
        results = await self._until_disconnect(request, work)
        is_list = isinstance(asked.q, list)
        answer: dict[str, Any] = {"translatedText": _as_asked([text for text, _ in results], is_list)}
        if detected:
            answer["detectedLanguage"] = _as_asked(detected, is_list)
        if any(chain.pivot for chain in chains):
            answer["pivotLanguage"] = _as_asked([chain.pivot for chain in chains], is_list)
        if asked.alternatives:
            answer["alternatives"] = _as_asked([others for _, others in results], is_list)
        return _answer(answer)

    async def details(self, request: Request) -> Response:
        """Lines with their candidates, scores, flags, alignment and attention, for the page."""
        asked: TranslateBody = await self._admit(request, TranslateBody)
        self._check_lines(asked.texts)
        text = asked.q if isinstance(asked.q, str) else "\n".join(asked.q)
        source, answer = asked.source, {}
        if source == "auto":
            answer["detectedLanguage"] = self._detect_source(text, asked.target)
            source = answer["detectedLanguage"]["language"]
        chain = self._chain(source, asked)
        if len(chain.batchers) != 1:
            raise HTTPException(
                400,
                f"target must be another language than source, but both are {source}"
                if not chain.batchers
                else f"there must be a model from {source} to {asked.target} for details, but there is none",
            )
        work = self._or_http_error(line_details(chain.batchers[0], text, asked.alternatives, asked.wishes))
        content = {**answer, "lines": await self._until_disconnect(request, work)}
        return await asyncio.to_thread(_answer, content)

    async def translate_file(self, request: Request) -> Response:
        """A file of any format; the answer says where its translation is fetched."""
        if not self._limits.file_bytes:
            raise HTTPException(403, "files are not translated by this server")
        async with self._uploads:
            return await self._file(request)

    async def _file(self, request: Request) -> Response:
        body = await read_body(request, self._limits, self._limits.file_bytes + _FORM_BYTES)
        asked, raw, name = await parse_file(request, body)
        self._admit_client(request, asked.api_key)
        asked = self._with_known_codes(asked)
        try:
            format = format_of(name, None)
        except InputError as error:
            raise HTTPException(400, str(error)) from None

        async def read(content: bytes) -> Document:
            languages = asked.source, asked.target  # an office document is read alike whatever they are
            return await self._or_http_error(
                asyncio.to_thread(read_document, content, format, languages, name)
            )

        document, source = await read(raw), asked.source
        if source == "auto":
            text = "\n".join(text.text for text in document.texts)[:_DETECTED_CHARACTERS]
            source = self._detect_source(text, asked.target)["language"]
        chain, content = self._chain(source, asked), raw
        if chain.pivot and format in KEEP_SOURCES:
            raise HTTPException(
                400, f"there must be a model from {source} to {asked.target} for {format}, but there is none"
            )
        async with self._file_turns:
            for step, batcher in enumerate(chain.batchers):
                if step:
                    document = await read(content)
                work = self._or_http_error(translate_document(batcher, document, asked.wishes))
                content = await self._until_disconnect(request, work, None)
        kept = await asyncio.to_thread(self._files.add, content, name, asked.target)
        answer = {"translatedFileUrl": str(request.url_for("download_file", name=kept))}
        return _answer({**answer, "pivotLanguage": chain.pivot} if chain.pivot else answer)

    async def download_file(self, request: Request) -> Response:
        found = self._files.find(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "there is no such file, or no longer: it waits for half an hour")
        headers = {"X-Content-Type-Options": "nosniff"}
        return FileResponse(found[0], filename=found[1], headers=headers)

    async def suggest(self, request: Request) -> Response:
        """A better translation, for the owner of the server."""
        asked: SuggestBody = await self._admit(request, SuggestBody)
        if self._suggestions is None:
            raise HTTPException(403, "suggestions are not taken by this server")
        line = asked.model_dump_json(exclude={"api_key"}) + "\n"
        try:
            await asyncio.to_thread(_append, self._suggestions, line)
        except OSError as error:
            _LOG.error("a suggestion could not be written: %s", error.strerror)
            raise HTTPException(500, "the suggestion could not be kept") from None
        return _answer({"success": True})

    async def settings(self, request: Request) -> Response:
        """What a page of LibreTranslate asks of its server."""
        _, target = next(iter(self._directions.batchers))
        files = [f".{ending}" for ending in ENDINGS] if self._limits.file_bytes else []
        return _answer({
            "charLimit": self._limits.characters or -1,
            "frontendTimeout": 500,
            "apiKeys": self._keys is not None,
            "keyRequired": self._keys is not None,
            "suggestions": self._suggestions is not None,
            "filesTranslation": bool(files),
            "supportedFilesFormat": files,
            "language": {
                "source": {"code": "auto", "name": "Auto Detect"},
                "target": {"code": target, "name": language_name(target)},
            },
        })  # fmt: skip

    async def detect(self, request: Request) -> Response:
        asked: DetectBody = await self._admit(request, DetectBody)
        found = self._directions.detect("\n".join(asked.texts))
        return _answer([{"language": one.language, "confidence": one.confidence} for one in found])

    async def spec(self, request: Request) -> Response:
        return _answer(openapi())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(page())

    async def languages(self, request: Request) -> Response:
        return _answer(self._directions.languages())

    async def health(self, request: Request) -> Response:
        return _answer({"status": "ok"})

    async def _admit(self, request: Request, kind: type) -> Any:
        """The checked request. 403 without a key where one is needed; 429 above the rate; 400 with too many
        characters.
        """
        body = await read_body(request, self._limits)
        asked = await parse(request, body, kind)
        self._admit_client(request, asked.api_key)
        if isinstance(asked, TranslateBody):
            asked = self._with_known_codes(asked)
        texts = getattr(asked, "texts", [])
        most = self._limits.characters
        if most and (count := sum(map(len, texts))) > most:
            raise HTTPException(400, f"the texts must have at most {most:,} characters, but have {count:,}")
        return asked

    def _admit_client(self, request: Request, api_key: str | None) -> None:
        """403 without a key where one is needed, in the body or as `Authorization: Bearer`; 429 above the
        rate.
        """
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if api_key is None and scheme.lower() == "bearer":
            api_key = token.strip()
        client = request.client.host if request.client else ""
        per_minute = self._limits.requests_per_minute
        if self._keys is not None:
            found = self._keys.find(api_key or "")
            if found is None:
                self._check_rate(client, per_minute or _GUESSES_PER_MINUTE)
                raise HTTPException(403, "api_key must be one that this server knows")
            client, per_minute = found[0], per_minute if found[1] is None else found[1]
        self._check_rate(client, per_minute)

    def _with_known_codes(self, asked: Asked) -> Asked:
        """The request with the codes of languages that the models have."""
        source, target = self._directions.known(asked.source, asked.target)
        return asked.model_copy(update={"source": source, "target": target})

    def _check_lines(self, texts: Sequence[str]) -> None:
        """400 with more lines than may wait to be translated."""
        lines = sum(text.count("\n") + 1 for text in texts)
        if lines > self._limits.queue_lines:
            raise HTTPException(
                400, f"the texts must have at most {self._limits.queue_lines:,} lines, but have {lines:,}"
            )

    def _check_rate(self, client: str, per_minute: int) -> None:
        """429 if the client has made its requests of this minute."""
        if per_minute and (wait := self._rate.seconds_to_wait(client, per_minute)):
            raise _too_many(f"at most {per_minute} requests per minute are answered", wait)

    def _detect_source(self, text: str, target: str) -> dict[str, Any]:
        """The likeliest language there is a model for; the target where the text is clearly in it. 400 where
        it is clearly in a language that is not translated.
        """
        among = self._directions.sources_of(target) or self._directions.sources
        if other := self._directions.other_language(text, [*among, target]):
            raise HTTPException(
                400,
                f"source must be {' or '.join(among)} with target {target}, but the text is in "
                f"{language_name(other)} ({other})",
            )
        best = self._directions.detect(text, [*among, target])[0]
        if best.language == target and best.confidence < _SURELY_TARGET:
            best = self._directions.detect(text, among)[0]
        return {"language": best.language, "confidence": best.confidence}

    def _chain(self, source: str, asked: TranslateBody | FileBody) -> Chain:
        """400 if there is no model for this direction, nor two."""
        try:
            chain = self._directions.chain(source, asked.target)
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        if chain.pivot and asked.glossary:
            raise HTTPException(
                400,
                f"there must be a model from {source} to {asked.target} for a glossary, but there is none",
            )
        return chain

    async def _page(self, chain: Chain, text: str, asked: TranslateBody) -> tuple[str, list[str]]:
        """A page's translation and the alternatives."""
        others: list[str] = []
        for step, batcher in enumerate(chain.batchers, start=1):
            alternatives = asked.alternatives if step == len(chain.batchers) else 0
            work = translate_html(batcher, text, alternatives, asked.wishes, asked.attributes)
            text, *others = await self._or_http_error(work)
        return text, others

    async def _texts(self, chains: Sequence[Chain], asked: TranslateBody) -> list[tuple[str, list[str]]]:
        """Each text's translation and the alternatives. Those of one model are one request of its queue."""
        results = [(text, list[str]()) for text in asked.texts]
        for chain in dict.fromkeys(chains):
            mine = [i for i, other in enumerate(chains) if other == chain]
            for step, batcher in enumerate(chain.batchers, start=1):
                alternatives = asked.alternatives if step == len(chain.batchers) else 0
                texts = [results[i][0] for i in mine]
                work = translate_texts(batcher, texts, alternatives, asked.wishes)
                for i, (best, *others) in zip(mine, await self._or_http_error(work)):
                    results[i] = best, others
        return results

    async def _or_http_error(self, translated: Coroutine[Any, Any, T]) -> T:
        try:
            return await translated
        except InputError as error:
            raise HTTPException(400, str(error)) from None
        except QueueFullError:
            raise _too_many("too many texts wait to be translated", 1.0) from None
        except Exception as error:
            # Not its text, which may hold some of the client's
            _LOG.error("a translation failed: %s", type(error).__name__)
            raise HTTPException(
                500, "the translation failed; the server's log has the kind of error"
            ) from None

    async def _until_disconnect(
        self, request: Request, translated: Coroutine[Any, Any, T], seconds: float | None = 0.0
    ) -> T:
        """The result. It is given up when the client is gone, or has waited for too long (503): `seconds`,
        0 being the usual time, None any.
        """
        seconds = (self._limits.seconds or None) if seconds == 0 else seconds
        work = asyncio.ensure_future(translated)
        gone = asyncio.ensure_future(_wait_until_gone(request))
        try:
            await asyncio.wait({work, gone}, timeout=seconds, return_when="FIRST_COMPLETED")
            if work.done():
                return work.result()
            if gone.done():
                raise ClientDisconnect
            raise HTTPException(
                503, f"the translation took more than {self._limits.seconds:g} seconds", {"Retry-After": "10"}
            )
        finally:
            work.cancel()
            gone.cancel()


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(line)


async def _one_by_one(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; none is computed before the one before it is there."""
    try:
        return [await coroutine for coroutine in coroutines]
    finally:
        for coroutine in coroutines:
            coroutine.close()  # after an error, those that were not begun


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _as_asked(values: list[Any], is_list: bool) -> Any:
    return values if is_list else values[0]


def _answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # Half a surrogate pair may stand in JSON, but not in UTF-8.
    body = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    return Response(body, status, headers, "application/json")


def _too_many(reason: str, seconds: float) -> HTTPException:
    return HTTPException(429, reason, {"Retry-After": str(max(1, round(seconds + 0.5)))})


async def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return _answer({"error": error.detail}, error.status_code, headers)


async def _client_disconnected(request: Request, error: Exception) -> Response:
    return Response(status_code=499)
