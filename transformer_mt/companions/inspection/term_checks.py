"""Terms of `data.terms.file` that no training pair has."""

from collections import Counter

from transformer_mt.companions.inspection.finding import Finding
from transformer_mt.companions.inspection.row_sample import weight_of
from transformer_mt.terms.glossary import Glossary
from transformer_mt.text.lines import Pair

_SHOWN = 5


class TermsCheck:
    """Counts the terms in the pairs of all training corpora of their direction."""

    def __init__(self, glossary: Glossary, file: str) -> None:
        self._glossary, self._file = glossary, file
        self._in_sources: Counter[str] = Counter()
        self._in_both: Counter[str] = Counter()
        self._pairs = self._pairs_with_terms = 0

    def add(self, row: int, pair: Pair) -> None:
        if not weight_of(row):
            return
        self._pairs += 1
        both = self._glossary.in_both(*pair)
        self._pairs_with_terms += bool(both)
        self._in_both.update({match.source for match in both})
        self._in_sources.update({match.source for match in self._glossary.find(pair[0])})

    def findings(self) -> list[Finding]:
        return []

    def notes(self) -> list[str]:
        """Sentences about the glossary."""
        terms = [term.source for term in self._glossary.terms]
        nowhere = [term for term in terms if not self._in_sources[term]]
        one_side = [term for term in terms if self._in_sources[term] and not self._in_both[term]]
        sentences = [
            f"{self._file}: {len(terms):,} terms; {self._pairs_with_terms:,} of {self._pairs:,} "
            "sampled training pairs have a term on both sides."
        ]
        for what, which in (
            ("are in no source", nowhere),
            ("are in sources, but their translations are in no target", one_side),
        ):
            if which:
                shown = ", ".join(which[:_SHOWN]) + (" ..." if len(which) > _SHOWN else "")
                sentences.append(f"{len(which):,} terms {what}: {shown}.")
        return sentences
