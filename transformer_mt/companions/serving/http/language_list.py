"""The models for the languages of a request."""

from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from transformer_mt.companions.serving.directions import Chain, Directions
from transformer_mt.companions.serving.http.requests import FileBody, TranslateBody
from transformer_mt.errors import InputError
from transformer_mt.text.languages import language_name

Asked = TypeVar("Asked", TranslateBody, FileBody)
# From this confidence on a text is taken to be in the target language already. A word or two have less.
_SURELY_TARGET = 90.0


def with_known_codes(directions: Directions, body: Asked) -> Asked:
    """The request with the codes of languages that the models have. 503 while there is no model."""
    if not directions.models:
        raise HTTPException(503, "this server has no model yet", {"Retry-After": "10"})
    source, target = directions.known(body.source, body.target)
    return body.model_copy(update={"source": source, "target": target})


def detect_source(directions: Directions, text: str, target: str, is_alone: bool = True) -> dict[str, Any]:
    """The likeliest language there is a model for; the target where the text is clearly in it. 400 where it
    is clearly in a language that is not translated; this language for one of several texts.
    """
    among = directions.sources_of(target) or directions.sources
    if other := directions.other_language(text, [*among, target]):
        if not is_alone:
            return {"language": other, "confidence": 100.0}
        raise HTTPException(
            400,
            f"source must be {' or '.join(among)} with target {target}, but the text is in "
            f"{language_name(other)} ({other})",
        )
    best = directions.detect(text, [*among, target])[0]
    if best.language == target and best.confidence < _SURELY_TARGET:
        best = directions.detect(text, among)[0]
    return {"language": best.language, "confidence": best.confidence}


def chain_of(directions: Directions, source: str, body: TranslateBody | FileBody) -> Chain:
    """400 if there is no model for this direction, nor two."""
    try:
        chain = directions.chain(source, body.target)
    except InputError as error:
        raise HTTPException(400, str(error)) from None
    if chain.pivot and body.glossary:
        raise HTTPException(
            400, f"there must be a model from {source} to {body.target} for a glossary, but there is none"
        )
    return chain
