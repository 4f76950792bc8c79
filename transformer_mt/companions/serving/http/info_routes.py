"""Handlers of questions about the server."""

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from transformer_mt.companions.documents.formats import ENDINGS
from transformer_mt.companions.serving.directions import Directions
from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.answers import answer
from transformer_mt.companions.serving.http.spec import openapi, page
from transformer_mt.text.languages import language_name


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
