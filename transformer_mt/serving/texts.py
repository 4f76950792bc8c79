"""The text of a request translated: its lines, or the texts of its HTML."""

from collections.abc import Sequence

from transformer_mt.documents.html import parse_html
from transformer_mt.documents.marked_text import MarkedText
from transformer_mt.documents.translate import pattern_of, write
from transformer_mt.serving.batcher import Batcher
from transformer_mt.translation.result import Candidate, Translation


async def translate_text(batcher: Batcher, text: str, n_best: int) -> list[str]:
    """The translations of a text, best first; each line is translated by itself."""
    results = await batcher.translate(text.replace("\r\n", "\n").split("\n"), n_best)
    return ["\n".join(candidate.translation for candidate in of_rank) for of_rank in _by_rank(results)]


async def translate_html(batcher: Batcher, text: str, n_best: int) -> list[str]:
    """The translations of a document or a fragment, best first."""
    pieces = parse_html(text.replace("\r\n", "\n"))
    texts = [piece for piece in pieces if isinstance(piece, MarkedText)]
    patterns = [pattern_of(each) for each in texts]
    results = await batcher.translate([each.text for each in texts], n_best, align=True, protect=patterns)
    found = []
    for of_rank in _by_rank(results) or [[]]:
        candidates = iter(of_rank)
        written = [piece if isinstance(piece, str) else write(piece, next(candidates))[0] for piece in pieces]
        found.append("".join(written))
    return found


def _by_rank(results: Sequence[Translation]) -> list[list[Candidate]]:
    """The k-th best of each line, or its best where it has fewer."""
    most = max((len(result.n_best) for result in results), default=0)
    return [
        [result.n_best[rank if rank < len(result.n_best) else 0] for result in results]
        for rank in range(most)
    ]
