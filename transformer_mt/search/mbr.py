"""Minimum-Bayes-risk choice: of some translations drawn from a model, the one most like all of them.

Eikema and Aziz 2020 ("Is MAP Decoding All You Need?", section 6): argmax over h of the mean over samples r of
utility(h, r).

Letters: N different samples, G different n-grams of one order.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from transformer_mt.text.unsegmented import has_no_word_spaces

_CHRF_ORDER, _CHRF_BETA, _BLEU_ORDER = 6, 2, 4  # sacreBLEU's defaults


def expected_utilities(
    samples: Sequence[str], utility: Literal["chrf", "bleu"], target_lang: str = "en"
) -> list[float]:
    """For each sample the mean of its utility against every sample, itself left out once; 0 to 100.

    The utilities are sacreBLEU's sentence scores. BLEU counts characters in a language that does not part
    its words.
    """
    counts = Counter(samples)
    texts = list(counts)
    weights = np.array(list(counts.values()), dtype=np.float64)
    utilities_NN = _chrf(texts) if utility == "chrf" else _bleu(texts, target_lang)
    np.fill_diagonal(utilities_NN, 100.0)
    totals_N = utilities_NN @ weights - 100.0
    expected = dict(zip(texts, (totals_N / max(1, len(samples) - 1)).tolist()))
    return [expected[sample] for sample in samples]


def _chrf(texts: Sequence[str]) -> np.ndarray:
    """Sentence chrF of each text (row) against each (column) (Popović 2015)."""
    characters = ["".join(text.split()) for text in texts]
    precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, _CHRF_ORDER + 1):
        matches_NN, sizes_N = _matches([_ngrams(text, order) for text in characters])
        both = (sizes_N[:, None] > 0) & (sizes_N[None] > 0)  # skip orders for which a text is too short
        precisions += np.divide(matches_NN, sizes_N[:, None], where=both, out=np.zeros_like(matches_NN))
        recalls += np.divide(matches_NN, sizes_N[None], where=both, out=np.zeros_like(matches_NN))
        orders += both
    # F-score of the means precisions / orders and recalls / orders: one factor `orders` remains.
    weight = _CHRF_BETA**2
    below = (weight * precisions + recalls) * orders
    return np.divide(
        100.0 * (1 + weight) * precisions * recalls, below, where=below > 0, out=np.zeros_like(below)
    )


def _bleu(texts: Sequence[str], target_lang: str) -> np.ndarray:
    """Sentence BLEU of each text (row) against each (column)."""
    from sacrebleu.metrics.bleu import BLEU  # slow to import

    tokenizer = BLEU(tokenize="char" if has_no_word_spaces(target_lang) else "13a").tokenizer
    tokens = [tokenizer(text.rstrip()).split() for text in texts]
    orders = range(1, _BLEU_ORDER + 1)
    by_order = [_matches([_ngrams(words, order) for words in tokens]) for order in orders]
    scores_NN = np.zeros((len(texts), len(texts)))
    for i, hypothesis in enumerate(tokens):
        total = [int(sizes_N[i]) for _, sizes_N in by_order]
        for j, reference in enumerate(tokens):
            correct = [int(matches_NN[i, j]) for matches_NN, _ in by_order]
            scores_NN[i, j] = BLEU.compute_bleu(
                correct, total, len(hypothesis), len(reference), smooth_method="exp", effective_order=True
            ).score
    return scores_NN


def _ngrams(units: str | list[str], order: int) -> Counter[str | tuple[str, ...]]:
    keys = (units[i : i + order] for i in range(len(units) - order + 1))
    return Counter(key if isinstance(key, str) else tuple(key) for key in keys)


def _matches(ngrams: Sequence[Counter[str | tuple[str, ...]]]) -> tuple[np.ndarray, np.ndarray]:
    """Count the n-grams that each two texts have in common (N, N), and those of each text (N,)."""
    distinct = dict.fromkeys(ngram for counts in ngrams for ngram in counts)
    index = {ngram: i for i, ngram in enumerate(distinct)}
    counts_NG = np.zeros((len(ngrams), len(index)))
    for row, counts in enumerate(ngrams):
        counts_NG[row, [index[ngram] for ngram in counts]] = list(counts.values())
    matches_NN = np.stack([np.minimum(counts_N, counts_NG).sum(axis=1) for counts_N in counts_NG])
    return matches_NN, counts_NG.sum(axis=1)
