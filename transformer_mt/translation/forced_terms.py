"""Terms that a translation lacks: the search for one that has them."""

from collections.abc import Sequence
from dataclasses import replace

from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.terms.glossary import Match
from transformer_mt.text.unsegmented import count_unsegmented
from transformer_mt.translation.alignment import align_segment
from transformer_mt.translation.engines.engine import Ids, Request
from transformer_mt.translation.flags import CONTROL
from transformer_mt.translation.units import Unit

_MOST_PHRASES, _MOST_PIECES = 8, 24
"""Phrases of a sentence, and pieces of one, that are searched for: more would take long."""


class ForcedTerms:
    """Makes requests for units whose translation lacks terms."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def written_again(
        self, unit: Unit, tgt: Ids, attention: Sequence[Sequence[float]], missing: Sequence[Match]
    ) -> Request | None:
        """The translation `tgt` up to the first word that stands for a missing term, then the term; the rest
        is searched for. None where no word stands for one.
        """
        text = CONTROL.sub(" ", unit.segment.searched)
        aligned = align_segment(self._tokenizer, text, unit.src, tgt, attention)
        begins = [
            (target[0], term)
            for source, target in aligned.links()
            for term in missing
            if source[0] < term.end and source[1] > term.begin
        ]
        if not begins:
            return None
        begin, term = min(begins, key=lambda found: found[0])
        spans = self._tokenizer.spans_tgt(tgt)
        kept = next((i for i, (_, end) in enumerate(spans) if end > begin), len(tgt))
        target = self._pieces(term.targets[0])
        if kept < len(unit.prefix) or UNK in target:
            return None
        return replace(unit.request, prefix=[*tgt[:kept], *target], limit=unit.limit + len(target))

    def anywhere(self, unit: Unit, missing: Sequence[Match]) -> Request | None:
        """A translation that has the missing terms, wherever the search puts them. None where none can be
        written.
        """
        each = (self._pieces(target) for target in dict.fromkeys(term.targets[0] for term in missing))
        phrases = [ids for ids in each if ids and UNK not in ids and len(ids) <= _MOST_PIECES][:_MOST_PHRASES]
        if not phrases:
            return None
        return replace(unit.request, phrases=phrases, limit=unit.limit + sum(map(len, phrases)))

    def _pieces(self, target: str) -> Ids:
        """A term as it stands inside a translation."""
        ids = self._tokenizer.encode_tgt([target])[0]
        is_spaced = not count_unsegmented(target[:1])
        return ids if is_spaced or self._tokenizer.pieces_tgt(ids[:1]) != ["▁"] else ids[1:]
