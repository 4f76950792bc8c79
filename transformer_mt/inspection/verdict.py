"""The verdict on all corpora in two sentences: are they good enough, and what comes first?"""

from transformer_mt.inspection.inspect import CorpusLook, Inspection

# From this share of a corpus on, something should be done; from this share of all pairs on, it must be.
_SHOULD, _MUST = 0.01, 0.1
# From this share of a validation or test set on, its scores say little.
_SCORES_SUFFER = 0.1
_FEW = 10_000


def verdict(inspection: Inspection) -> str:
    """Two sentences."""
    total = sum(look.rows for look in inspection.corpora if look.is_training)
    usable = round(sum(usable_pairs(look) for look in inspection.corpora if look.is_training))
    few = ""
    if usable < _FEW:
        few = f"; about {usable:,} usable pairs are few" if usable else "; no pair is usable as it is"
    serious = [
        (suspicion.weight * suspicion.pairs, look, suspicion)
        for look in inspection.corpora
        for suspicion in look.suspicions
        if suspicion.weight * look.share(suspicion) >= (_SHOULD if look.is_training else _SCORES_SUFFER)
    ]
    if not serious:
        first = "get more data" if few else "train"
        return (
            f"Good enough{few or f': about {usable:,} usable pairs'}. First, {first}; no suspicion concerns "
            "1 % of a corpus."
        )
    pairs, look, suspicion = max(serious, key=lambda found: found[0])
    of_all = total if look.is_training else look.rows
    grade = "Not good enough yet" if pairs >= _MUST * of_all else "Good enough after a correction"
    concerned = f"about {suspicion.pairs:,} pairs ({look.share(suspicion):.1%})"
    first = f"{suspicion.action} for" if look.is_training else "look at the examples of"
    return (
        f"{grade}{few or f': about {usable:,} pairs are usable as they are'}. First, {first} {look.name}: "
        f"{suspicion.what} concerns {concerned}."
    )


def usable_pairs(look: CorpusLook) -> float:
    """An estimate of the pairs that nothing speaks against, if the suspicions are independent."""
    share = 1.0 - look.empty / max(1, look.rows)
    for suspicion in look.suspicions:
        if suspicion.drops and suspicion.weight in (0.0, 1.0):
            share *= 1.0 - min(1.0, look.share(suspicion))
    return look.rows * share
