"""A server with the chat-completions interface: a question, and the answer or why there is none."""

import asyncio
import base64
import html
import json
import math
import os
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from transformer_mt.companions.teacher.teacher_section import LanguageModelConfig
from transformer_mt.errors import InputError, WorkError

_MOST_BYTES = 4 << 20
_TEMPORARY = {408, 409, 425, 429}
_OF_THE_TEXT = {400, 403, 413, 422, 451}  # a server that takes other texts may refuse this one
_REASONS = {"length": "truncated", "content_filter": "refused"}
NO_ANSWER, NOT_TAKEN = "no answer", "not taken"


class Reply(NamedTuple):
    """The answer to a question."""

    text: str = ""
    reason: str | None = None
    """Why it is no translation: truncated or refused; NOT_TAKEN; or NO_ANSWER, which another try may help."""
    message: str = ""
    """What the server says of that."""
    wait: float = 0.0
    """Seconds that the server asks to wait."""
    is_busy: bool = False
    """True if it would answer another time."""
    prompt_tokens: int | None = None
    """None where the server does not say."""
    answer_tokens: int | None = None


class Chat:
    """The server of a teacher. Questions are asked within `async with`."""

    def __init__(self, settings: LanguageModelConfig) -> None:
        """InputError if the extra or the key is missing."""
        try:
            import httpx
        except ImportError:
            raise InputError("this needs httpx: pip install 'transformer-mt[teacher]'") from None
        self._httpx, self._settings = httpx, settings
        self.address = f"{settings.endpoint.rstrip('/')}/chat/completions"
        self._has_answered = False
        self._key = os.environ.get(settings.key, "").strip() if settings.key else ""
        if settings.key and not (self._key.isascii() and self._key.isprintable() and self._key):
            raise InputError(
                f"the environment variable {settings.key}, which teacher.key names, must hold the key of the "
                "server, in one line, but does not"
            )

        self._spellings = _spellings(self._key)

    async def __aenter__(self) -> None:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limits = self._httpx.Limits(max_connections=None)
        try:  # redirects are not followed, so that the key goes to no other address
            self._client = self._httpx.AsyncClient(headers=headers, timeout=None, limits=limits)
        except (ImportError, ValueError) as error:
            raise InputError(f"the proxy that the environment names cannot be used: {error}") from None

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, question: str) -> Reply:
        """The reply. InputError if the server takes no requests like this one."""
        message = {"role": "user", "content": question}
        body = {**self._settings.parameters, "model": self._settings.model, "messages": [message]}
        content = b""
        try:
            async with (
                asyncio.timeout(self._settings.timeout),
                self._client.stream("POST", self.address, json=body) as response,
            ):
                async for block in response.aiter_bytes():
                    content += block
                    if len(content) > _MOST_BYTES:
                        return Reply(reason=NO_ANSWER, message=f"more than {_MOST_BYTES >> 20} MB")
        except TimeoutError:
            return Reply(reason=NO_ANSWER, message=f"no answer within {self._settings.timeout:g} s")
        except (self._httpx.HTTPError, self._httpx.InvalidURL) as error:
            is_off = isinstance(error, self._httpx.ConnectError | self._httpx.InvalidURL)
            wait = math.inf if is_off and not self._has_answered else 0.0  # it was never there
            said = self._in_a_line(str(error) or type(error).__name__)
            return Reply(reason=NO_ANSWER, message=said, wait=wait)
        status = response.status_code
        said = f"{status}: {self._message(content)}"
        if status == 200:
            return self._reply(content)
        if status >= 500 or status in _TEMPORARY:
            wait = _seconds(response.headers.get("Retry-After", ""))
            return Reply(reason=NO_ANSWER, message=said, wait=wait, is_busy=status in (429, 503))
        if status in _OF_THE_TEXT:
            return Reply(reason=NOT_TAKEN, message=said)
        raise self.refusal(said)

    def refusal(self, said: str) -> InputError:
        """The error of a server that takes no request."""
        return InputError(
            f"{self.address}: must take the requests, but answers {said}; check endpoint, model, key and "
            "parameters"
        )

    def silence(self, said: str) -> WorkError:
        """The error of a server that gives no answer, `said` in its words."""
        return WorkError(
            f"{self.address}: must answer, but does not ({said}); what was answered is kept, run the same "
            "command to resume"
        )

    def _reply(self, content: bytes) -> Reply:
        try:
            answer = json.loads(content)
            choice, usage = answer["choices"][0], answer.get("usage") or {}
            text, finish = _text_of(choice["message"].get("content")), choice.get("finish_reason")
            tokens = [usage.get(f"{kind}_tokens") for kind in ("prompt", "completion")]
            text = text.encode(errors="replace").decode()  # JSON can hold half a character
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return Reply(reason=NO_ANSWER, message=f"no chat completion: {self._message(content)}")
        self._has_answered = True
        known = (n if type(n) is int and 0 <= n < 1 << 40 else None for n in tokens)
        return Reply(text, _REASONS.get(str(finish)), "", 0.0, False, *known)

    def _message(self, content: bytes) -> str:
        """The message of an answer that is an error."""
        text = content.decode(errors="replace")
        try:
            error: Any = json.loads(text)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, LookupError, TypeError, RecursionError):
            pass
        return self._in_a_line(text)

    def _in_a_line(self, text: str) -> str:
        """The text without the key, in one line that is not too long."""
        text = " ".join(text.split())
        for spelled in self._spellings:
            text = re.sub(re.escape(spelled), "…", text, flags=re.IGNORECASE)
        return text[:200]


def _text_of(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type") in ("text", "output_text"))
    return content or ""


def _spellings(key: str) -> list[str]:
    """A key as it may stand in a message: as it is, in a URL, in JSON, HTML, base64 or hexadecimal digits;
    the longest first.
    """
    if not key:
        return []
    raw = key.encode()
    encoded = [base64.b64encode(raw), base64.urlsafe_b64encode(raw), base64.b64encode(b"Bearer " + raw)]
    spelled = [key, quote(key, safe=""), quote_plus(key), json.dumps(key)[1:-1], html.escape(key), raw.hex()]
    spelled += [text.decode().rstrip("=") for text in encoded]
    return sorted(set(spelled), key=len, reverse=True)


def _seconds(header: str) -> float:
    """The wait of a header Retry-After, which has seconds or a date."""
    if header.strip().isdecimal():
        return float(header)
    try:
        return parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, TypeError):
        return 0.0
