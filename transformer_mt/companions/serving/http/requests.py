"""Request bodies: JSON or a form, validated; the API in OpenAPI's form, and as a page to read."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from html import escape
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from transformer_mt.companions.serving.batcher import QueueFullError, RequestOptions
from transformer_mt.companions.serving.http.limits import Limits
from transformer_mt.companions.serving.models import ModelGoneError, NotLoadedError
from transformer_mt.errors import InputError
from transformer_mt.files import to_json
from transformer_mt.version import __version__

T = TypeVar("T")
_LOG = logging.getLogger("transformer_mt.companions.serving")


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(json_bytes(content), status, headers, "application/json")


def json_bytes(content: Any) -> bytes:
    """JSON in UTF-8."""
    # Half a surrogate pair may stand in JSON, but not in UTF-8.
    return to_json(content, ensure_ascii=False).encode("utf-8", "replace")


def too_many(reason: str, seconds: float) -> HTTPException:
    """The error 429, with the seconds after which the client may ask again."""
    return HTTPException(429, reason, {"Retry-After": str(max(1, round(seconds + 0.5)))})


async def or_http_error(translated: Coroutine[Any, Any, T]) -> T:
    """The result. Errors are raised as an HTTPException."""
    try:
        return await translated
    except InputError as error:
        raise HTTPException(400, str(error)) from None
    except QueueFullError:
        raise too_many("too many texts wait to be translated", 1.0) from None
    except ModelGoneError:
        raise HTTPException(503, "the model has been replaced; ask again", {"Retry-After": "1"}) from None
    except NotLoadedError as error:
        _LOG.error("a model could not be loaded: %s", error)
        raise HTTPException(
            500, "the model could not be loaded; see the server's log", {"Retry-After": "10"}
        ) from None
    except HTTPException:
        raise
    except Exception as error:
        # Not its text, which may hold some of the client's
        _LOG.error("a translation failed: %s", type(error).__name__)
        raise HTTPException(500, "the translation failed; the server's log has the kind of error") from None


async def until_disconnect(request: Request, translated: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """The result. The work is cancelled if the client disconnects, or after `seconds` (503); None is no
    limit.
    """
    work = asyncio.ensure_future(translated)
    gone = asyncio.ensure_future(_wait_until_gone(request))
    try:
        await asyncio.wait({work, gone}, timeout=seconds, return_when="FIRST_COMPLETED")
        if work.done():
            return work.result()
        if gone.done():
            raise ClientDisconnect
        raise HTTPException(503, f"the translation took more than {seconds:g} seconds", {"Retry-After": "10"})
    finally:
        work.cancel()
        gone.cancel()


async def _wait_until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def error_response(request: Request, error: Exception) -> Response:
    """The answer to an HTTPException."""
    assert isinstance(error, HTTPException)
    return answer({"error": error.detail}, error.status_code, dict(error.headers or {}))


async def client_disconnected(request: Request, error: Exception) -> Response:
    """An answer for a client that has gone."""
    return Response(status_code=499)


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    api_key: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_blank(cls, fields: Any) -> Any:
        """Drop blank fields other than `q`, as if they were left out, and convert the numbers, booleans and
        glossary that forms send as text.
        """
        given = {key: value for key, value in fields.items() if key == "q" or value not in (None, "")}
        alternatives = str(given.get("alternatives", ""))
        if alternatives.isdecimal() and len(alternatives) <= 3:  # Python reads at most 4,300 digits
            given["alternatives"] = int(alternatives)
        for key in ("protect", "attributes"):
            if str(given.get(key)).lower() in ("true", "false"):
                given[key] = str(given[key]).lower() == "true"
        if isinstance(glossary := given.get("glossary"), str):  # in a form
            with suppress(ValueError, RecursionError):
                given["glossary"] = json.loads(glossary)
        return given


_MOST_TERMS = 1000
_Term = Annotated[str, Field(max_length=200)]
Glossary = Annotated[
    dict[_Term, _Term | Annotated[list[_Term], Field(max_length=20)]], Field(max_length=_MOST_TERMS)
]
"""Terms, each with its translation or several."""


def _terms(glossary: Glossary) -> dict[str, list[str]]:
    entries = {
        source: [targets] if isinstance(targets, str) else targets for source, targets in glossary.items()
    }
    return {source: list(filter(str.strip, targets)) for source, targets in entries.items()}


Texts = Annotated[list[str], Field(fail_fast=True)]
"""Several texts; validation stops at the first item that is not a text."""


class TranslateBody(_Body):
    """The body of POST /translate."""

    q: str | Texts
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=100)] = 0
    protect: bool | None = None
    """Whether addresses, placeholders and the like pass unchanged; by default as the model's config says."""
    attributes: bool = True
    """With format html: whether the texts of attributes are translated."""
    glossary: Glossary = {}
    """Terms and how they are translated, in addition to the server's glossary."""

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def request_options(self) -> RequestOptions:
        return RequestOptions(self.protect, _terms(self.glossary))


class DetectBody(_Body):
    """The body of POST /detect."""

    q: str | Texts

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q


_MUST = {
    "q": "q must be a text or a list of texts",
    "s": "s must be a text",
    "source": "source must be a language code or auto",
    "target": "target must be a language code",
    "format": "format must be text or html",
    "alternatives": "alternatives must be a number from 0 to 100",
    "api_key": "api_key must be a text",
    "protect": "protect must be true or false",
    "attributes": "attributes must be true or false",
    "glossary": f"glossary must be at most {_MOST_TERMS:,} terms of at most 200 characters with their "
    'translations, such as {"house": "Haus"}',
}


class FileBody(_Body):
    """The body of POST /translate_file, but for the file."""

    source: str
    target: str
    glossary: Glossary = {}

    @property
    def request_options(self) -> RequestOptions:
        return RequestOptions(None, _terms(self.glossary))


class SuggestBody(_Body):
    """The body of POST /suggest."""

    q: Annotated[str, Field(min_length=1)]
    s: Annotated[str, Field(min_length=1)]
    """A better translation of q."""
    source: str
    target: str


async def read_body(request: Request, limits: Limits, most: int | None = None) -> bytes:
    """The body. 413 if it is too large, 408 if the client takes too long to send it."""
    most = limits.body_bytes if most is None else most
    seconds = limits.body_seconds * max(1, round(most / 1_000_000))

    async def read() -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise HTTPException(413, f"a request must have at most {most:,} bytes")
            parts.append(part)
        return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), seconds)
    except TimeoutError:
        raise HTTPException(
            408, f"a request must be sent within {seconds:g} seconds", {"Connection": "close"}
        ) from None


def _check_charset(request: Request) -> None:
    """400 for a form in another encoding than UTF-8: decoding some of them takes minutes."""
    _, _, charset = request.headers.get("content-type", "").lower().partition("charset=")
    if charset and charset.split(";")[0].strip(" \"'") not in ("utf-8", "utf8"):
        raise HTTPException(400, f"the form must be in UTF-8, but its charset is {charset[:40]}")


async def parse_file(request: Request, body: bytes) -> tuple[FileBody, bytes, str]:
    """The fields of a form, and the content and name of its file. 400 if the body is not such a form."""

    async def stream() -> Any:
        yield body

    _check_charset(request)
    try:
        form = await MultiPartParser(request.headers, stream(), max_files=1, max_fields=100).parse()
    except (MultiPartException, KeyError, ValueError):
        raise HTTPException(400, "the body must be a form (multipart/form-data) with one file") from None
    file = form.get("file")
    if not isinstance(file, UploadFile) or not file.filename:
        raise HTTPException(400, "file must be a file with a name")
    fields = {key: value for key, value in form.multi_items() if isinstance(value, str)}
    parsed: FileBody = _validated(
        _fields([*_urlencoded(request.url.query.encode()), *fields.items()]), FileBody
    )
    return parsed, await file.read(), file.filename


async def parse(request: Request, body: bytes, kind: type[_Body]) -> Any:
    """The request as an instance of `kind`. 400 if it is not valid."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    query = request.url.query.encode()
    if content_type == "multipart/form-data":
        fields = _fields([*_urlencoded(query), *await _multipart(request, body)])
    elif content_type == "application/x-www-form-urlencoded" or (not body and query):
        fields = _fields([*_urlencoded(query), *_urlencoded(body)])
    else:
        fields = _fields(_urlencoded(query)) | _json(body)
    return _validated(fields, kind)


def _validated(fields: dict[str, Any], kind: type[_Body]) -> Any:
    try:
        json.dumps(fields, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # JSON can hold half of a surrogate pair
        raise HTTPException(400, "texts must be Unicode, but one has half of a surrogate pair") from None
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        names = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors())
        raise HTTPException(400, "; ".join(_MUST[name] for name in names)) from None


def _json(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise HTTPException(400, "the body must be a JSON object in UTF-8, or a form")
    return fields


def _fields(items: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The values by name. Several `q` become a list; of any other field, the last value counts."""
    fields: dict[str, Any] = dict(items)
    texts = [value for name, value in items if name == "q"]
    return fields | ({"q": texts} if len(texts) > 1 else {})


def _urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=10_000)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise HTTPException(400, f"the form must be in UTF-8, but byte {byte:#04x} is not") from None
    except ValueError:
        raise HTTPException(400, "the form must have at most 10,000 fields") from None


async def _multipart(request: Request, body: bytes) -> list[tuple[str, str]]:
    async def stream() -> Any:
        yield body

    _check_charset(request)
    try:
        body.decode("utf-8")
        form = await MultiPartParser(request.headers, stream(), max_files=0, max_fields=10_000).parse()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise HTTPException(400, f"the form must be in UTF-8, but byte {byte:#04x} is not") from None
    except MultiPartException as error:
        if "files" in error.message:
            raise HTTPException(400, "q must be a text, but is a file; send its content") from None
        raise HTTPException(400, _NO_FORM) from None
    except (KeyError, ValueError):
        raise HTTPException(400, _NO_FORM) from None
    return [(key, value) for key, value in form.multi_items() if isinstance(value, str)]


_NO_FORM = "the form must be encoded as its content type says"


_TEXTS = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_ERRORS = {
    "400": "the request is invalid", "403": "a key is needed, or the server does not do this",
    "408": "the request took too long", "413": "the request is too large",
    "429": "too many requests; Retry-After says when to retry",
    "503": "too many connections, or no translation in time",
}  # fmt: skip


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


_LANGUAGE = _object(
    code={"type": "string"}, name={"type": "string"}, targets={"type": "array", "items": {"type": "string"}}
)
_DETECTED = _object(language={"type": "string"}, confidence={"type": "number"})
_POSTS: dict[str, tuple[str, type[BaseModel], dict[str, Any]]] = {
    "/translate": (
        "Translate a text or a list of texts", TranslateBody,
        _object(translatedText=_TEXTS, detectedLanguage=_DETECTED, alternatives={"type": "array"}),
    ),
    "/translate_file": (
        "Translate a file", FileBody,
        _object(
            translatedFileUrl={"type": "string", "format": "uri"},
            remarks={"type": "array", "items": {"type": "string"}},
        ),
    ),
    "/detect": ("Find the language of a text", DetectBody, {"type": "array", "items": _DETECTED}),
    "/details": (
        "Translate lines, with candidates, flags, alignment and attention", TranslateBody,
        _object(lines={"type": "array", "items": {"type": "object"}}),
    ),
    "/suggest": ("Suggest a better translation", SuggestBody, _object(success={"type": "boolean"})),
}  # fmt: skip
_GETS: dict[str, tuple[str, dict[str, Any]]] = {
    "/languages": ("The languages and their target languages", {"type": "array", "items": _LANGUAGE}),
    "/models": (
        "The models, with their bytes of memory; null while one is not loaded",
        {
            "type": "array",
            "items": _object(
                source={"type": "string"},
                target={"type": "string"},
                name={"type": "string"},
                memory={"type": ["integer", "null"]},
            ),
        },
    ),
    "/frontend/settings": ("Settings of the server for a page", {"type": "object"}),
    "/health": ("Health of the server", _object(status={"type": "string"})),
}


def openapi() -> dict[str, Any]:
    """The description of the API."""
    schemas: dict[str, Any] = {"Error": _object(error={"type": "string"})}
    paths: dict[str, Any] = {}
    for path, (summary, body, answer) in _POSTS.items():
        schema = body.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schema.pop("description", None)
        kinds = ["application/json", "application/x-www-form-urlencoded"]
        if path == "/translate_file":
            schema["properties"]["file"] = {"type": "string", "format": "binary"}
            schema["required"] = [*schema.get("required", []), "file"]
            kinds = ["multipart/form-data"]
        content = {kind: {"schema": schema} for kind in kinds}
        paths[path] = {
            "post": {"summary": summary, "requestBody": {"content": content}, "responses": _answers(answer)}
        }
    for path, (summary, shape) in _GETS.items():
        paths[path] = {"get": {"summary": summary, "responses": _answers(shape, errors=False)}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "transformer_mt",
            "version": __version__,
            "description": "Compatible with LibreTranslate.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _answers(schema: dict[str, Any], errors: bool = True) -> dict[str, Any]:
    def answer(text: str, content: dict[str, Any]) -> dict[str, Any]:
        return {"description": text, "content": {"application/json": {"schema": content}}}

    error = {"$ref": "#/components/schemas/Error"}
    wrong = {status: answer(text, error) for status, text in _ERRORS.items()} if errors else {}
    return {"200": answer("the answer", schema), **wrong}


def page() -> str:
    """The description as HTML."""
    spec = openapi()
    rows = []
    for path, methods in spec["paths"].items():
        for method, facts in methods.items():
            content: dict[str, Any] = facts.get("requestBody", {}).get("content", {})
            schema: dict[str, Any] = next((kind["schema"] for kind in content.values()), {})
            needed = schema.get("required", [])
            fields = ", ".join(
                f"<b>{escape(name)}</b>" if name in needed else escape(name)
                for name in schema.get("properties", {})
            )
            rows.append(
                f"<tr><td>{method.upper()} {escape(path)}<td>{escape(facts['summary'])}<td>{fields}<td>"
                f"{', '.join(facts['responses'])}"
            )
    return _PAGE.replace("ROWS", "".join(rows))


_PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The API</title>
<style>
body { font-family: sans-serif; margin: 1em }
table { border-collapse: collapse }
td, th { border: 1px solid; padding: .4em; text-align: left }
</style>
<h1>The API</h1>
<p>Bold fields are required. For programs: <a href="spec">spec</a> (OpenAPI).
<table><tr><th>request<th>what it does<th>fields<th>answers
ROWS
</table></html>
"""
