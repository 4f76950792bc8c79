"""Misaligned pairs, and lines of two files that are shifted against each other by an extra line.

Words get vectors by random indexing: each line has a random vector, and the vector of a word is the sum of
the vectors of the lines that contain it. So words that translate each other have similar vectors, and a line
is similar to its translation. Word vectors are computed from other blocks than the ones they are used on;
otherwise rare words would make lines similar only because they stand side by side.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.companions.inspection.finding import Example, Finding
from transformer_mt.corpora.held_out import Block
from transformer_mt.data.preparation.training_links import WordPair, import_thot
from transformer_mt.text.languages import has_no_word_spaces

MOST = 5
"""The largest shift that is looked for, in lines."""

# The fit of eight real corpora is 0.17 to 0.41. It is 0.07 to 0.18 if half of the lines are shifted, and 0.00
# to 0.07 if all are.
_GOOD_FIT = 0.1
_WIDTH = 192
_LEAST_LINES = 200
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Shift:
    """Blocks whose source lines fit target lines `by` lines later."""

    by: int
    blocks: list[Block]
    lines: float
    """The estimated number of shifted lines, including lines at both ends that do not fill a block."""


def find_shifts(blocks: Sequence[Block], languages: tuple[str, str]) -> list[Shift]:
    """The shifts in the blocks, the one with the most lines first."""
    whole = [block for block in blocks if len(block.pairs) > 2 * MOST]
    if sum(len(block.pairs) for block in whole) < _LEAST_LINES:
        return []
    tokens = [
        _Tokens([[pair[side] for pair in block.pairs] for block in whole], languages[side]) for side in (0, 1)
    ]
    by = 0
    if _fit(tokens, 0) < _GOOD_FIT:  # perhaps all lines are shifted, so that no word is learnt
        by = max(range(-MOST, MOST + 1), key=lambda by: (_fit(tokens, by), by == 0))
    scores = _block_scores(tokens, by)
    return _shifted(whole, scores)


def words(text: str, language: str) -> list[str]:
    """The first words of a text in lower case, or its first characters in languages without word spaces."""
    split = list if has_no_word_spaces(language) else _WORD.findall
    return split(text.lower()[:500])


class _Tokens:
    """The words of one side: which word stands in which line."""

    def __init__(self, blocks: Sequence[Sequence[str]], language: str) -> None:
        ids: dict[str, int] = {}
        ids_of_lines: list[int] = []
        lines: list[int] = []
        self.block_of = np.repeat(np.arange(len(blocks)), [len(block) for block in blocks])
        for line, text in enumerate(text for block in blocks for text in block):
            ids_of_words = {ids.setdefault(word, len(ids)) for word in words(text, language)}
            ids_of_lines += ids_of_words
            lines += [line] * len(ids_of_words)
        self.words, self.lines = np.array(ids_of_lines, np.int64), np.array(lines, np.int64)
        self.count = np.bincount(self.words, minlength=len(ids))
        # Words of many lines say little; words of one line nothing.
        useful = (self.count > 1) & (self.count < 0.1 * len(self.block_of))
        keep = useful[self.words]
        self.words, self.lines = self.words[keep], self.lines[keep]
        order = np.argsort(self.words, kind="stable")
        self.words, self.lines = self.words[order], self.lines[order]

    def line_vectors(self, signatures: np.ndarray) -> np.ndarray:
        """(lines, width): the mean of the unit vectors of a line's words, rare words weighted more. Word
        vectors for even blocks come from odd ones, and the other way round.
        """
        vectors = np.zeros((len(self.block_of), signatures.shape[1]), np.float32)
        is_even = self.block_of[self.lines] % 2 == 0
        for side in (is_even, ~is_even):
            word_vectors = np.zeros((len(self.count), signatures.shape[1]), np.float32)
            _add_rows(word_vectors, self.words[~side], signatures, self.lines[~side])
            norms = np.linalg.norm(word_vectors, axis=1, keepdims=True)
            weights = np.log(len(self.block_of) / np.maximum(self.count, 1))[:, None].astype(np.float32)
            word_vectors *= weights / np.maximum(norms, 1e-9)
            order = np.argsort(self.lines[side], kind="stable")
            _add_rows(vectors, self.lines[side][order], word_vectors, self.words[side][order])
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)


def _add_rows(target: np.ndarray, where: np.ndarray, source: np.ndarray, which: np.ndarray) -> None:
    """target[where] += source[which], with sorted `where`; in parts, because the rows are gathered."""
    part = 1 << 16
    for begin in range(0, len(where), part):
        rows, starts = np.unique(where[begin : begin + part], return_index=True)
        target[rows] += np.add.reduceat(source[which[begin : begin + part]], starts, axis=0)


def _line_vectors(tokens: Sequence[_Tokens], by: int) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of source and target lines if words are learnt from pairs shifted by `by` lines."""
    count = len(tokens[0].block_of)
    signatures = np.random.default_rng(1).standard_normal((count, _WIDTH), np.float32)
    # Target line i + by has the signature of source line i.
    return tokens[0].line_vectors(signatures), tokens[1].line_vectors(np.roll(signatures, by, axis=0))


def _fit(tokens: Sequence[_Tokens], by: int) -> float:
    """How well lines fit if all are shifted by `by`: their mean similarity minus that of random pairs."""
    src, tgt = _line_vectors(tokens, by)
    away = len(src) // 3
    paired = float((src * np.roll(tgt, -by, axis=0)).sum(1).mean())
    return round(paired - float((src * np.roll(tgt, -away, axis=0)).sum(1).mean()), 3)


def _block_scores(tokens: Sequence[_Tokens], by: int) -> np.ndarray:
    """(blocks, 2 * MOST + 1): mean similarity of source line i and target line i + k inside each block."""
    src, tgt = _line_vectors(tokens, by)
    block_of = tokens[0].block_of
    scores = np.zeros((block_of[-1] + 1, 2 * MOST + 1), np.float32)
    for column, k in enumerate(range(-MOST, MOST + 1)):
        first = np.arange(max(0, -k), len(src) - max(0, k))
        first = first[block_of[first] == block_of[first + k]]
        similarity = (src[first] * tgt[first + k]).sum(1)
        sums = np.bincount(block_of[first], similarity, minlength=len(scores))
        scores[:, column] = sums / np.maximum(1, np.bincount(block_of[first], minlength=len(scores)))
    return scores


def _shifted(blocks: Sequence[Block], scores: np.ndarray) -> list[Shift]:
    """The shifts of those blocks whose best shift scores higher than no shift. The margin must be more than
    30 % of the best score, and more than four standard deviations of the block's scores without the two
    highest.
    """
    best = scores.argmax(1)
    unshifted = scores[:, MOST]
    others = np.sort(scores, axis=1)[:, :-2]
    margin = scores.max(1) - unshifted
    is_shifted = (best != MOST) & (margin > 4 * others.std(1)) & (margin > 0.3 * scores.max(1))
    shifted = []
    for column in np.unique(best[is_shifted]):
        where = np.flatnonzero(is_shifted & (best == column))
        parts = _shifted_parts(scores[:, column] - unshifted, where)
        lines = sum(part * len(block.pairs) for part, block in zip(parts, blocks))
        shifted.append(Shift(int(column) - MOST, [blocks[int(i)] for i in where], float(lines)))
    return sorted(shifted, key=lambda shift: -shift.lines)


def _shifted_parts(margin: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The shifted part of each block: 1 for the blocks in `where`, and a fraction for their neighbours,
    because a shift begins and ends inside a block. The margin is -m if no line of a block is shifted and
    rises to m if all are.
    """
    full = margin[where].mean()
    parts = np.zeros(len(margin))
    near = np.union1d(where - 1, where + 1)
    near = near[(near >= 0) & (near < len(margin))]
    share = np.clip((margin[near] + full) / (2 * full), 0.0, 1.0)
    parts[near] = np.where(share > 0.2, share, 0.0)
    parts[where] = 1.0
    return parts


_LEAST, _MOST = 1_000, 4_000
"""The fewest pairs that a model can learn from, and a number that is enough."""
_RANKS = (0.2, 0.3, 0.5, 0.7)
_PASSES = 5
_PRIOR_WORDS = 8
"""The number of words without evidence that are added to each pair, because a short pair says little."""
_SAME_WORD = 4.0


def find_misaligned(blocks: Sequence[Block], languages: tuple[str, str], rows: int) -> Finding | None:
    """The misaligned pairs, estimated from the blocks; None if there are none, or too few pairs to tell."""
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
    # A share `rank` of the misaligned pairs is below each limit. Aligned pairs below it make an estimate too
    # high, so the lowest estimate is taken.
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
