"""The check of each request against the limits (limits.py): 400, 403 or 429."""

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request

from transformer_mt.companions.serving.http.limits import ApiKeys, Limits, RequestRate
from transformer_mt.companions.serving.http.requests import parse, read_body, too_many


class Admission:
    """Checks requests before they are worked on."""

    def __init__(self, limits: Limits, keys: ApiKeys | None) -> None:
        self.limits, self.keys = limits, keys
        self._rate = RequestRate()

    async def admit(self, request: Request, kind: type) -> Any:
        """The checked request. 403 if a required key is missing or unknown; 429 if the client exceeds its
        rate; 400 if there are too many characters.
        """
        body = await read_body(request, self.limits)
        parsed = await parse(request, body, kind)
        self.admit_client(request, parsed.api_key)
        most = self.limits.characters
        if most and (count := sum(map(len, getattr(parsed, "texts", [])))) > most:
            raise HTTPException(400, f"the texts must have at most {most:,} characters, but have {count:,}")
        return parsed

    def admit_client(self, request: Request, api_key: str | None) -> None:
        """403 if a valid key is required but neither `api_key` nor `Authorization: Bearer` has one; 429 if
        the client exceeds its rate.
        """
        api_key = _bearer(request) if api_key is None else api_key
        client = request.client.host if request.client else ""
        per_minute = self.limits.requests_per_minute
        if self.keys is not None:
            owner = self.keys.find(api_key or "")
            if owner is None:
                self._check_rate(client, per_minute)
                raise HTTPException(403, "api_key must be one that this server knows")
            client, per_minute = owner[0], per_minute if owner[1] is None else owner[1]
        self._check_rate(client, per_minute)

    def knows(self, request: Request) -> bool:
        """True if no key is required, or if the request's headers have a valid one."""
        return self.keys is None or self.keys.find(_bearer(request) or "") is not None

    def check_lines(self, texts: Sequence[str], one_each: bool = False) -> None:
        """400 if there are more lines than may wait. With `one_each`, each text counts as one line."""
        lines = len(texts) if one_each else sum(text.count("\n") + 1 for text in texts)
        if lines > self.limits.queue_lines:
            raise HTTPException(
                400, f"the texts must have at most {self.limits.queue_lines:,} lines, but have {lines:,}"
            )

    def _check_rate(self, client: str, per_minute: int) -> None:
        """429 if the client has made its requests of this minute."""
        if per_minute and (wait := self._rate.seconds_to_wait(client, per_minute)):
            raise too_many(f"at most {per_minute} requests per minute are answered", wait)


def _bearer(request: Request) -> str | None:
    """The key in the head of a request."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
