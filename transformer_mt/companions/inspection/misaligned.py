"""Pairs whose sides do not translate each other, by IBM model 1 (Brown et al. 1993) of thot.

A model of half of the blocks scores the other half: so no pair explains itself. Each word of both sides that
the model knows is evidence: log p(word | the likeliest word of the other side) / p(word), at least log 0.1.
Words that are the same on both sides count, too. The score of a pair is the mean, with some words without
evidence added. Sources with the targets of other pairs show the scores that misaligned pairs have.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from transformer_mt.companions.inspection.finding import Example, Finding
from transformer_mt.companions.inspection.shifted_lines import words
from transformer_mt.corpora.held_out import Block
from transformer_mt.data.preparation.training_links import WordPair, import_thot

_LEAST, _MOST = 1_000, 4_000
"""Pairs that a model can learn from, and that are enough."""
_RANKS = (0.2, 0.3, 0.5, 0.7)
_PASSES = 5
_PRIOR_WORDS = 8
"""Words without evidence that are added to each pair: little is known about a short one."""
_SAME_WORD = 4.0


def find_misaligned(blocks: Sequence[Block], languages: tuple[str, str], rows: int) -> Finding | None:
    """The misaligned pairs, estimated from the blocks; None without any or with too few pairs to tell."""
    step = -(-sum(len(block.pairs) for block in blocks) // _MOST) or 1
    pairs: list[WordPair] = []
    labels, halves = [], []
    for number, block in enumerate(blocks[::step]):
        for row, pair in enumerate(block.pairs, start=block.start):
            if all(pair):
                pairs.append((words(pair[0], languages[0]), words(pair[1], languages[1])))
                labels.append(Example(row + 1, pair))
                halves.append(number % 2)
    if len(pairs) < _LEAST:
        return None
    scores, scores_of_others = _scores(pairs, np.array(halves))
    limits = np.quantile(scores_of_others, _RANKS)
    # Of misaligned pairs the share `rank` is below its limit. Other pairs below it make an estimate too high.
    estimate = min(int((scores <= limit).sum()) / rank for limit, rank in zip(limits, _RANKS))
    if not estimate:
        return None
    finding = Finding("misaligned pairs", "look at the examples; no key drops them", weight=0.3)
    finding.examples = [labels[i] for i in np.argsort(scores, kind="stable")[:5]]
    finding.pairs = round(estimate * rows / len(pairs))
    return finding


class _Lexicon:
    """Translations of single words."""

    def __init__(self, pairs: Sequence[WordPair]) -> None:
        self._model = import_thot().Ibm1AlignmentModel()
        for src, tgt in pairs:
            self._model.add_sentence_pair(src, tgt)
        self._model.start_training()
        for _ in range(_PASSES):
            self._model.train()
        self._model.end_training()
        self._share = {
            word: count / len(pairs)
            for word, count in Counter(word for _, tgt in pairs for word in set(tgt)).items()
            if count > 1  # a word of one pair may be learnt from a misaligned one
        }
        self._translations: dict[str, dict[str, float]] = {}

    def evidence(self, src: Sequence[str], tgt: Sequence[str]) -> tuple[float, int]:
        """The sum of log p(word | src) / p(word) over the known words of `tgt`, and their number."""
        tables = [self._table(word) for word in src]
        known = [word for word in dict.fromkeys(tgt) if word in self._share]
        probabilities = (max((t.get(word, 0.0) for t in tables), default=0.0) for word in known)
        return sum(math.log(0.1 + 0.9 * p / self._share[w]) for w, p in zip(known, probabilities)), len(known)

    def _table(self, word: str) -> dict[str, float]:
        if word not in self._translations:
            index = self._model.get_src_word_index(word)
            translations = (
                self._model.get_translations(index, 0.01) if self._model.src_word_exists(word) else []
            )
            self._translations[word] = {
                self._model.get_trg_word(int(number)): p for number, p in translations
            }
        return self._translations[word]


def _scores(pairs: Sequence[WordPair], halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the pairs, and of each source with the target of another pair."""
    scores, others = np.zeros(len(pairs)), np.zeros(len(pairs))
    for half in (0, 1):
        training = [pair for pair, h in zip(pairs, halves) if h != half]
        forward = _Lexicon(training)
        backward = _Lexicon([(tgt, src) for src, tgt in training])
        scored = np.flatnonzero(halves == half)
        for of, partners in ((scores, scored), (others, np.roll(scored, len(scored) // 3))):
            for i, j in zip(scored.tolist(), partners.tolist()):
                src, tgt = pairs[i][0], pairs[j][1]
                parts = forward.evidence(src, tgt), backward.evidence(tgt, src)
                same = len(_stems(src) & _stems(tgt))  # names and numbers, and words of one origin
                total = sum(value for value, _ in parts) + _SAME_WORD * same
                of[i] = total / (sum(count for _, count in parts) + same + _PRIOR_WORDS)
    return scores, others


def _stems(text: Sequence[str]) -> set[str]:
    return {word[:4] for word in text if len(word) > 2 or word.isdigit()}
