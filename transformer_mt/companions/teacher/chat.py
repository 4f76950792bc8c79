"""A server with the chat-completions interface: a question is asked until it is answered."""

import asyncio
import json
import os
import random
import time
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig
from transformer_mt.errors import InputError, WorkError

_TRIES, _MOST_WAIT = 7, 600.0
_MOST_BYTES = 4 << 20
_TEMPORARY = {408, 409, 425, 429, 500, 502, 503, 504, 529}
_OF_THE_TEXT = {400, 413, 422, 451}  # of a server that takes other texts, but not this one
_REASONS = {"length": "truncated", "content_filter": "refused"}


class Reply(NamedTuple):
    """The answer to a question."""

    text: str
    reason: str | None
    """Why it is no answer: truncated or refused."""
    requests: int
    prompt_tokens: int | None
    """None where the server does not say."""
    answer_tokens: int | None


class _FailedTryError(Exception):
    """A try that failed, and perhaps another will not."""

    def __init__(self, message: str, wait: float | None = None) -> None:
        super().__init__(message)
        self.wait = wait


class Chat:
    """The server of a teacher. Questions are asked within `async with`."""

    def __init__(self, settings: LanguageModelConfig) -> None:
        """InputError if the extra or the key is missing."""
        try:
            import httpx
        except ImportError:
            raise InputError("this needs httpx: pip install 'transformer-mt[teacher]'") from None
        self._httpx, self._settings = httpx, settings
        self._address = f"{settings.endpoint.rstrip('/')}/chat/completions"
        self._has_answered = False
        self._key = os.environ.get(settings.key, "").strip() if settings.key else ""
        if settings.key and not (self._key and self._key.isascii()):
            raise InputError(
                f"the environment variable {settings.key}, which teacher.key names, must hold the key of the "
                "server, but does not"
            )

    async def __aenter__(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = self._httpx.Limits(max_connections=None)
        # Redirects are not followed, so that the key goes to no other address.
        self._client = self._httpx.AsyncClient(headers=headers, timeout=None, limits=limits)

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: str) -> Reply:
        """The reply. InputError if the server does not take such requests, WorkError if it is silent."""
        message, usual = "", 1.0
        for attempt in range(1, _TRIES + 1):
            try:
                async with asyncio.timeout(self._settings.timeout):
                    return await self._post(question, attempt)
            except TimeoutError:
                message, wait = f"no answer within {self._settings.timeout:g} s", None
            except _FailedTryError as error:
                message, wait = str(error), error.wait
            if attempt == _TRIES or (wait or 0.0) > _MOST_WAIT:
                break
            await asyncio.sleep(usual * random.uniform(0.5, 1.0) if wait is None else wait)
            usual = min(2 * usual, 60.0)
        raise WorkError(
            f"{self._address}: must answer, but does not ({message}); run the same command to resume"
        )

    async def _post(self, question: str, attempt: int) -> Reply:
        message = {"role": "user", "content": question}
        body = {**self._settings.parameters, "model": self._settings.model, "messages": [message]}
        content = b""
        try:
            async with self._client.stream("POST", self._address, json=body) as response:
                async for block in response.aiter_bytes():
                    content += block
                    if len(content) > _MOST_BYTES:
                        raise _FailedTryError(f"its answer has more than {_MOST_BYTES >> 20} MB")
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            if (
                isinstance(error, self._httpx.ConnectError | self._httpx.InvalidURL)
                and not self._has_answered
            ):
                raise WorkError(f"{self._address}: must be a server that runs, but is not: {error}") from None
            raise _FailedTryError(str(error) or type(error).__name__) from None
        status = response.status_code
        if status == 200:
            return self._reply(content, attempt)
        if status in _TEMPORARY:
            wait = _seconds(response.headers.get("Retry-After", ""))
            raise _FailedTryError(f"{status}: {self._message(content)}", wait)
        if status in _OF_THE_TEXT and self._has_answered:
            return Reply("", "refused", attempt, None, None)
        raise InputError(
            f"{self._address}: must take the requests, but answers {status}: {self._message(content)}; check "
            "endpoint, model, key and parameters"
        )

    def _reply(self, content: bytes, attempt: int) -> Reply:
        try:
            answer = json.loads(content)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text, finish = choice["message"].get("content") or "", choice.get("finish_reason")
            tokens = [usage.get(f"{kind}_tokens") for kind in ("prompt", "completion")]
            if not isinstance(text, str):
                raise TypeError
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise _FailedTryError(f"this is no chat completion: {self._message(content)}") from None
        self._has_answered = True
        known = (n if type(n) is int and n >= 0 else None for n in tokens)
        return Reply(text, _REASONS.get(str(finish)), attempt, *known)

    def _message(self, content: bytes) -> str:
        """The message of an answer, in one line and without the key."""
        text = content.decode(errors="replace")
        try:
            error: Any = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        text = " ".join(text.split())
        return (text.replace(self._key, "…") if self._key else text)[:200]


def _seconds(header: str) -> float | None:
    """The wait of a header Retry-After, which has seconds or a date."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
