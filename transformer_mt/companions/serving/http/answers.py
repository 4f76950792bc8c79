"""Answers in JSON, errors as HTTP statuses, and the time that a request may take."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from transformer_mt.companions.serving.batcher import QueueFullError
from transformer_mt.companions.serving.served_model import ModelGoneError, NotLoadedError
from transformer_mt.errors import InputError
from transformer_mt.files import to_json

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
    """The result. It is given up when the client is gone, or has waited for so many seconds (503); None is no
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
