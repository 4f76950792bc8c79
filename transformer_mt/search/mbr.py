"""Minimum-Bayes-risk choice: of some translations drawn from a model, the one most like all of them.

Eikema and Aziz 2020 ("Is MAP Decoding All You Need?", section 6): argmax over h of the mean over samples r of
utility(h, r).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from transformer_mt.data.spaceless import is_spaceless


def expected_utilities(
    samples: Sequence[str], utility: Literal["chrf", "bleu"], target_lang: str = "en"
) -> list[float]:
    """For each sample the mean of its utility against every sample, itself left out once; 0 to 100.

    BLEU counts characters in a language that does not part its words.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    tokenize = "char" if is_spaceless(target_lang) else "13a"
    metric = CHRF() if utility == "chrf" else BLEU(effective_order=True, tokenize=tokenize)
    counts = Counter(samples)
    expected: dict[str, float] = {}
    for hypothesis, own in counts.items():
        total = 100.0 * (own - 1)
        for reference, count in counts.items():
            if reference != hypothesis:
                total += count * metric.sentence_score(hypothesis, [reference]).score
        expected[hypothesis] = total / max(1, len(samples) - 1)
    return [expected[sample] for sample in samples]
