"""Terms that a translation lacks: the search for one that has them."""

import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transformer_mt.data.vocabulary.tokenizer import UNK
from transformer_mt.terms.glossary import Match
from transformer_mt.text.languages import count_unsegmented
from transformer_mt.text.lines import as_read
from transformer_mt.translation.alignment import AlignedSegment, align_segment
from transformer_mt.translation.engines.engine import Ids, Request
from transformer_mt.translation.planner import Planner
from transformer_mt.translation.units import Unit

_MOST_PHRASES, _MOST_PIECES = 8, 24
"""Phrases of a sentence, and pieces of one, that are searched for: more would take long."""


class ForcedTerms:
    """Makes requests for units whose translation lacks terms."""

    def __init__(self, planner: Planner) -> None:
        self._tokenizer, self._most = planner.tokenizer, planner.max_positions or sys.maxsize

    def written_again(
        self, unit: Unit, tgt: Ids, attention: Sequence[Sequence[float]], missing: Sequence[Match]
    ) -> Request | None:
        """The translation `tgt` up to the first word that stands for a missing term, then the term; the rest
        is searched for. None where no word stands for one.
        """
        text = as_read(unit.segment.searched)
        aligned = align_segment(self._tokenizer, text, unit.src, tgt, attention, positions=unit.positions)
        places = [(_words_for(aligned, term), term) for term in missing]
        located = [(words, term) for words, term in places if words is not None]
        if not located:
            return None
        (first, last), term = min(located, key=lambda place: place[0])
        begin, end = aligned.target[first][0], aligned.target[last][1]
        spans = self._tokenizer.spans_tgt(tgt)
        kept = next((i for i, span in enumerate(spans) if span[1] > begin), len(tgt))
        target = self._pieces(term.targets[0])
        if kept < len(unit.prefix) or UNK in target:
            return None
        # Keep the next token, too: otherwise the term could become the beginning of a longer word.
        after = [i for i, span in zip(tgt, spans) if span[0] >= end and span[1] > span[0]][:1]
        prefix = [*tgt[:kept], *target, *after]
        limit = min(unit.limit + len(target), self._most)
        return replace(unit.request, prefix=prefix, limit=limit) if len(prefix) < limit else None

    def anywhere(self, unit: Unit, terms: Sequence[Match]) -> Request | None:
        """A translation that has all terms, wherever the search puts them. None where none can be written."""
        spellings = (self._pieces(target) for target in dict.fromkeys(term.targets[0] for term in terms))
        phrases = [ids for ids in spellings if ids and UNK not in ids and len(ids) <= _MOST_PIECES][
            :_MOST_PHRASES
        ]
        if not phrases:
            return None
        limit = min(unit.limit + sum(map(len, phrases)), self._most)
        return replace(unit.request, phrases=phrases, limit=limit)

    def _pieces(self, target: str) -> Ids:
        """Token ids of a term inside a translation, without a leading space if its script has none."""
        ids = self._tokenizer.encode_tgt([target])[0]
        is_spaced = not count_unsegmented(target[:1])
        return ids if is_spaced or self._tokenizer.pieces_tgt(ids[:1]) != ["▁"] else ids[1:]


def _words_for(aligned: AlignedSegment, term: Match) -> tuple[int, int] | None:
    """First and last target word of a term's translation: the word best aligned to the term, extended to
    neighbours that are aligned mainly to it.
    """
    places = [i for i, (begin, end) in enumerate(aligned.source) if begin < term.end and end > term.begin]
    share = aligned.weights[:, places].sum(axis=1) if places and aligned.weights.size else np.zeros(0)
    if not share.any():
        return None
    stands_for_it = [row.any() and int(row.argmax()) in places for row in aligned.weights]
    first = last = int(share.argmax())
    while first and stands_for_it[first - 1]:
        first -= 1
    while last + 1 < len(stands_for_it) and stands_for_it[last + 1]:
        last += 1
    return first, last
