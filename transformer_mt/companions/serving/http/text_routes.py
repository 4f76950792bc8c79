"""Handlers of requests with texts."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.info_routes import chain_of, detect_source, with_known_codes
from transformer_mt.companions.serving.http.requests import (
    DetectBody,
    SuggestBody,
    TranslateBody,
    answer,
    or_http_error,
    until_disconnect,
)
from transformer_mt.companions.serving.models import Chain, Directions
from transformer_mt.companions.serving.text_translation import (
    line_details,
    plain_details,
    translate_html,
    translate_texts,
    without_markup,
)

T = TypeVar("T")
_LOG = logging.getLogger("transformer_mt.companions.serving")
_SUGGESTIONS_BYTES = 100_000_000
"""Largest size of the file of suggestions: clients must not be able to fill the disk."""


class TextRoutes:
    """POST /translate, /details, /detect and /suggest."""

    def __init__(self, directions: Directions, admission: Admission, suggestions: Path | None) -> None:
        self._directions, self._admission, self._suggestions = directions, admission, suggestions
        self._seconds = admission.limits.seconds or None

    async def translate(self, request: Request) -> Response:
        body: TranslateBody = await self._admit(request)
        self._admission.check_lines(body.texts, one_each=body.format == "html")
        detected = []
        sources = [body.source] * len(body.texts)
        if body.source == "auto":
            # In a thread: this can take longer than other requests should wait.
            work = asyncio.to_thread(self._detected, body)
            detected = await until_disconnect(request, or_http_error(work), self._seconds)
            # A text in a language that no model translates is returned unchanged, like one that is
            # already in the target language.
            translated_from = self._directions.sources_of(body.target) or self._directions.sources
            guesses = [guess["language"] for guess in detected]
            sources = [code if code in translated_from else body.target for code in guesses]
        chains = [chain_of(self._directions, source, body) for source in sources]
        if body.format == "html":
            # One document at a time: together they may have more texts than fit into the queue.
            translated = _one_by_one([_page(chain, text, body) for chain, text in zip(chains, body.texts)])
        else:
            translated = _texts(chains, body)
        results = await until_disconnect(request, or_http_error(translated), self._seconds)
        is_list = isinstance(body.q, list)
        content: dict[str, Any] = {"translatedText": _as_asked([text for text, _ in results], is_list)}
        if detected:
            content["detectedLanguage"] = _as_asked(detected, is_list)
        if any(chain.pivot for chain in chains):
            content["pivotLanguage"] = _as_asked([chain.pivot for chain in chains], is_list)
        if body.alternatives:
            content["alternatives"] = _as_asked([others for _, others in results], is_list)
        return answer(content)

    def _detected(self, body: TranslateBody) -> list[dict[str, Any]]:
        """The language of each text."""
        texts = list(map(without_markup, body.texts)) if body.format == "html" else body.texts
        target, is_alone = body.target, len(texts) == 1
        guesses = {
            text: detect_source(self._directions, text, target, is_alone) for text in dict.fromkeys(texts)
        }
        return [guesses[text] for text in texts]

    async def details(self, request: Request) -> Response:
        """Lines with their candidates, scores, flags, alignment and attention, for the page; only the
        translation if two models translate one after the other.
        """
        body: TranslateBody = await self._admit(request)
        self._admission.check_lines(body.texts)
        text = body.q if isinstance(body.q, str) else "\n".join(body.q)
        source, content = body.source, dict[str, Any]()
        if source == "auto":
            content["detectedLanguage"] = detect_source(self._directions, text, body.target)
            source = content["detectedLanguage"]["language"]
        chain = chain_of(self._directions, source, body)
        if chain.pivot:
            content["pivotLanguage"] = chain.pivot

        async def lines() -> list[dict[str, Any]]:
            if len(chain.models) != 1:
                ((whole, _),) = await _texts([chain], body.model_copy(update={"q": text, "alternatives": 0}))
                return plain_details(text, whole)
            async with chain.models[0].loaded() as batcher:
                return await line_details(batcher, text, body.alternatives, body.request_options)

        lines_of_text = await until_disconnect(request, or_http_error(lines()), self._seconds)
        return await asyncio.to_thread(answer, {**content, "lines": lines_of_text})

    async def detect(self, request: Request) -> Response:
        body: DetectBody = await self._admission.admit(request, DetectBody)
        guesses = self._directions.detect("\n".join(body.texts))
        return answer([{"language": one.language, "confidence": one.confidence} for one in guesses])

    async def suggest(self, request: Request) -> Response:
        """A better translation, for the owner of the server."""
        body: SuggestBody = await self._admission.admit(request, SuggestBody)
        if self._suggestions is None:
            raise HTTPException(403, "this server does not take suggestions")
        line = body.model_dump_json(exclude={"api_key"}) + "\n"
        try:
            await asyncio.to_thread(_append, self._suggestions, line)
        except OSError as error:
            _LOG.error("a suggestion could not be written: %s", error.strerror or error)
            raise HTTPException(500, "the suggestion could not be kept") from None
        return answer({"success": True})

    async def _admit(self, request: Request) -> TranslateBody:
        return with_known_codes(self._directions, await self._admission.admit(request, TranslateBody))


async def _page(chain: Chain, text: str, body: TranslateBody) -> tuple[str, list[str]]:
    """A page's translation and the alternatives."""
    others: list[str] = []
    # After the first of two models, the page is in the pivot language but still names its original language.
    source: str | None = None
    for step, model in enumerate(chain.models, start=1):
        alternatives = body.alternatives if step == len(chain.models) else 0
        async with model.loaded() as batcher:
            source = source or batcher.translator.source_lang
            text, *others = await translate_html(
                batcher, text, alternatives, body.request_options, body.attributes, source
            )
    return text, others


async def _texts(chains: Sequence[Chain], body: TranslateBody) -> list[tuple[str, list[str]]]:
    """Each text's translation and alternatives. All texts for one model enter its queue as one request."""
    results = [(text, list[str]()) for text in body.texts]
    for chain in dict.fromkeys(chains):
        of_chain = [i for i, other in enumerate(chains) if other == chain]
        for step, model in enumerate(chain.models, start=1):
            alternatives = body.alternatives if step == len(chain.models) else 0
            texts = [results[i][0] for i in of_chain]
            async with model.loaded() as batcher:
                translations = await translate_texts(batcher, texts, alternatives, body.request_options)
            for i, (best, *others) in zip(of_chain, translations):
                results[i] = best, others
    return results


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        if file.tell() > _SUGGESTIONS_BYTES:
            raise OSError("the file is full")
        file.write(line)


async def _one_by_one(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results; each coroutine starts only after the previous one has finished."""
    try:
        return [await coroutine for coroutine in coroutines]
    finally:
        for coroutine in coroutines:
            coroutine.close()  # after an error, those that were not begun


def _as_asked(values: list[Any], is_list: bool) -> Any:
    return values if is_list else values[0]
