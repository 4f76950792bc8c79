"""Request bodies: JSON or a form, validated."""

import asyncio
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.formparsers import FormParser, MultiPartException, MultiPartParser
from starlette.requests import Request

from transformer_mt.serving.limits import Limits


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    api_key: str | None = None


class TranslateBody(_Body):
    """The body of POST /translate."""

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=100)] = 0

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q


class DetectBody(_Body):
    """The body of POST /detect."""

    q: str

    @property
    def texts(self) -> list[str]:
        return [self.q]


_MUST = {
    "q": "q must be a text or a list of texts",
    "source": "source must be a language code or auto",
    "target": "target must be a language code",
    "format": "format must be text or html",
    "alternatives": "alternatives must be a number from 0 to 100",
    "api_key": "api_key must be a text",
}


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body. 413 if it is too large, 408 if the client takes too long to send it."""

    async def read() -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > limits.body_bytes:
                raise HTTPException(413, f"a request must have at most {limits.body_bytes:,} bytes")
            parts.append(part)
        return b"".join(parts)

    try:
        return await asyncio.wait_for(read(), limits.body_seconds)
    except TimeoutError:
        raise HTTPException(
            408, f"a request must be sent within {limits.body_seconds:g} seconds", {"Connection": "close"}
        ) from None


async def parse(request: Request, body: bytes, kind: type[_Body]) -> Any:
    """The request as a `kind`. 400 if it is none."""
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type in ("application/x-www-form-urlencoded", "multipart/form-data"):
        fields = await _form(request, body, content_type)
    else:
        fields = _json(body)
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
        fields = json.loads(body.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise HTTPException(400, "the body must be a JSON object in UTF-8, or a form")
    return fields


async def _form(request: Request, body: bytes, content_type: str) -> dict[str, Any]:
    async def stream() -> Any:
        yield body

    is_multipart = content_type == "multipart/form-data"
    try:
        parser = (
            MultiPartParser(request.headers, stream(), max_files=0, max_fields=20)
            if is_multipart
            else FormParser(request.headers, stream())
        )
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, UnicodeDecodeError):
        raise HTTPException(400, "the form must be one that was encoded as its content type says") from None
    fields: dict[str, Any] = {key: value for key, value in form.items() if isinstance(value, str)}
    alternatives = str(fields.get("alternatives", ""))
    if alternatives.isdecimal() and len(alternatives) <= 3:  # Python reads at most 4,300 digits
        fields["alternatives"] = int(alternatives)
    return fields
