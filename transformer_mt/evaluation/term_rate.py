"""Share of a glossary's terms that the translations of a test set have."""

from collections.abc import Sequence

from transformer_mt.evaluation.metric import References, Score
from transformer_mt.terms.glossary import Glossary


def term_rates(
    glossary: Glossary, sources: Sequence[str], translations: Sequence[str], references: References
) -> list[Score]:
    """Shares in percent of the terms, of those that a source and one of its references have: as they stand in
    the glossary, and in any inflected form. None where there are no such terms.
    """
    exact = any_form = total = lines = 0
    for source, translation, targets in zip(sources, translations, references):
        terms = max((glossary.in_both(source, target) for target in targets), key=len, default=[])
        total, lines = total + len(terms), lines + bool(terms)
        exact += sum(glossary.is_rendered(term, translation, exactly=True) for term in terms)
        any_form += sum(glossary.is_rendered(term, translation) for term in terms)
    if not total:
        return []
    counted = f"of {total:,} terms in {lines:,} sentences"
    return [
        Score("terms", 100 * any_form / total, f"in any form, {counted}"),
        Score("terms as they stand", 100 * exact / total, counted),
    ]
