"""The API in OpenAPI's form, and as a page to read."""

from html import escape
from typing import Any

from pydantic import BaseModel

from transformer_mt.companions.serving.http.requests import DetectBody, FileBody, SuggestBody, TranslateBody
from transformer_mt.version import __version__

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
