"""The text of a request translated: its lines, or the texts of its HTML."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from transformer_mt.companions.documents.document_translation import all_texts, key_of, pattern_of, write
from transformer_mt.companions.documents.markup.html import parse_html
from transformer_mt.companions.documents.markup.marked_text import MarkedText, Piece
from transformer_mt.companions.documents.read import Document
from transformer_mt.companions.serving.batcher import (
    NO_REQUEST_OPTIONS,
    Batcher,
    QueueFullError,
    RequestOptions,
)
from transformer_mt.errors import InputError
from transformer_mt.translation.result import Candidate, Translation


async def translate_texts(
    batcher: Batcher,
    texts: Sequence[str],
    alternatives: int,
    request_options: RequestOptions = NO_REQUEST_OPTIONS,
) -> list[list[str]]:
    """For each text its translation and up to `alternatives` others; each line is translated by itself."""
    lines = [_lines(text) for text in texts]
    every = [line for of_line in lines for line in of_line]
    n_best = _n_best(batcher, alternatives)
    results = iter(await batcher.translate(every, n_best, request_options=request_options))
    of_texts = [_by_rank(list(islice(results, len(of_line)))) for of_line in lines]
    return [
        ["\n".join(candidate.translation for candidate in of_rank) for of_rank in ranks] for ranks in of_texts
    ]


async def translate_html(
    batcher: Batcher,
    text: str,
    alternatives: int,
    request_options: RequestOptions = NO_REQUEST_OPTIONS,
    attributes: bool = True,
    source_lang: str | None = None,
) -> list[str]:
    """The translation of a document or a fragment, and up to `alternatives` others. InputError if it has more
    texts than may wait. `source_lang` is the language that the page may say it is in, if it is not the
    model's.
    """
    # In threads: a document can take longer than other requests should wait.
    source = source_lang or batcher.translator.source_lang
    pieces = await asyncio.to_thread(parse_html, text, source, attributes)
    texts = all_texts([piece for piece in pieces if isinstance(piece, MarkedText)])
    if len(texts) > batcher.queue_lines:
        raise InputError(f"the HTML must have at most {batcher.queue_lines:,} texts, but has {len(texts):,}")
    patterns = [pattern_of(part) for part in texts]
    n_best = _n_best(batcher, alternatives)
    results = await batcher.translate(
        [part.text for part in texts], n_best, align=True, protect=patterns, request_options=request_options
    )
    return await asyncio.to_thread(_written, pieces, results)


_PAUSE = 0.5
"""Seconds after which a part of a file asks again for a position in a full queue."""
_TEXTS_AT_ONCE = 200
"""Texts of a file that wait for the model at a time: other requests come between."""
Progress = Callable[[int, int], None]
"""Called with the number of texts translated so far and the total number of texts."""


async def translate_document(
    batcher: Batcher,
    document: Document,
    request_options: RequestOptions = NO_REQUEST_OPTIONS,
    progress: Progress = lambda done, of: None,
) -> bytes:
    """The translation of a file. A text that occurs again is translated once."""
    every = all_texts(document.texts)
    keys = [key_of(text) for text in every]
    first: dict[object, MarkedText] = {}
    for key, text in zip(keys, every):
        first.setdefault(key, text)
    texts = list(first.values())
    results: list[Translation] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        progress(start, len(texts))
        part = texts[start : start + _TEXTS_AT_ONCE]
        while True:
            try:
                results += await batcher.translate(
                    [text.text for text in part], align=True, protect=[pattern_of(text) for text in part],
                    request_options=request_options,
                )  # fmt: skip
                break
            except QueueFullError:  # a file waits: what is done of it would be lost
                await asyncio.sleep(_PAUSE)
    progress(len(texts), len(texts))
    translations = dict(zip(first, results))
    written = [translations[key] for key in keys]
    return await asyncio.to_thread(lambda: document.written(_written(document.pieces, written)[0]))


def _written(pieces: Sequence[Piece], results: Sequence[Translation]) -> list[str]:
    texts = []
    for of_rank in _by_rank(results) or [[]]:
        candidates = iter(of_rank)
        written = [
            piece
            if isinstance(piece, str)
            else write(piece, list(islice(candidates, 1 + len(piece.inner))))[0]
            for piece in pieces
        ]
        texts.append("".join(written))
    return texts


def without_markup(text: str) -> str:
    """The texts of a document or a fragment, to detect their language."""
    return "\n".join(
        piece.text for piece in parse_html(text, attributes=False) if isinstance(piece, MarkedText)
    )


async def line_details(
    batcher: Batcher, text: str, alternatives: int, request_options: RequestOptions = NO_REQUEST_OPTIONS
) -> list[dict[str, Any]]:
    """The facts about the translation of each line. Positions count characters (Unicode code points)."""
    n_best = _n_best(batcher, alternatives)
    lines = _lines(text)
    results = await batcher.translate(lines, n_best, align=True, request_options=request_options)
    # In a thread: the attention of long lines takes longer than other requests should wait.
    return await asyncio.to_thread(lambda: list(map(_line_details, results)))


def plain_details(text: str, translation: str) -> list[dict[str, Any]]:
    """The lines of a text and its translation in the form of `line_details`, where no more is known."""
    nothing: dict[str, Any] = {"flags": [], "confidence": None, "segments": []}
    return [
        {"source": source, "candidates": [{"text": target, "score": None}], **nothing}
        for source, target in zip(_lines(text), translation.split("\n"), strict=True)
    ]


def _line_details(result: Translation) -> dict[str, Any]:
    return {
        "source": result.source,
        "flags": result.flags,
        "confidence": result.confidence,
        "candidates": [
            {"text": candidate.translation, "score": round(candidate.score, 4)} for candidate in result.n_best
        ],
        "segments": [
            {
                "source": segment.source,
                "target": segment.target,
                "links": list(segment.links()),
                "attention": [[round(weight, 3) for weight in row] for row in segment.attention.tolist()],
            }
            for segment in result.n_best[0].aligned
        ],
    }


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def _n_best(batcher: Batcher, alternatives: int) -> int:
    return min(alternatives + 1, batcher.translator.decode.num_hypotheses)


def _by_rank(results: Sequence[Translation]) -> list[list[Candidate]]:
    """For each rank, the candidate of each line at that rank, or its best if it has fewer."""
    most = max((len(result.n_best) for result in results), default=0)
    return [
        [result.n_best[rank if rank < len(result.n_best) else 0] for result in results]
        for rank in range(most)
    ]
