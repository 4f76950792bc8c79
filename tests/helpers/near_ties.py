"""Comparison of greedy translations by two engines, whose sums are rounded in other orders."""

from collections.abc import Sequence

from transformer_mt import Translator

ROUNDING = 1e-3
"""Log-probabilities of a token by two engines in float32 differ by less: sums of some hundred terms of a size
around ten, in a few layers, have an error of 100 * 10 * 2^-24 = 6e-5.
"""


def differ_by_rounding(
    translator: Translator, source: str, ours: Sequence[str], theirs: Sequence[str]
) -> bool:
    """True if the greedy translations, as tokens without the end of sentence, are the same up to a token that
    is as likely as the other engine's, for the translator's model. What follows it may be anything.
    """
    ours, theirs = [*ours, "</s>"], [*theirs, "</s>"]
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
    if place is None:
        return len(ours) == len(theirs)
    ids = {piece: i for i, piece in enumerate(translator.tokenizer.all_pieces_tgt)}
    src = translator.encode_src([source])[0]
    # With more than one token after the place, the end of sentence, which is always scored last, is not it.
    scored = [
        translator.token_log_probs([(src, [ids[token] for token in tokens[: place + 1] if token != "</s>"])])
        for tokens in (ours, theirs)
    ]
    a, b = (log_probs[place] for (log_probs,) in scored)
    return abs(a - b) <= ROUNDING
