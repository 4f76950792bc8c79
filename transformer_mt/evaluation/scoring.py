"""What a model says about existing text: its probability, and the expected quality of translations.

Translating with an export imports this file, so it must not import torch.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from transformer_mt.errors import InputError
from transformer_mt.search.hypothesis import LengthPenalty
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.engines.engine import Ids
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.confidence import Calibration
from transformer_mt.translator import Translator


@dataclass(frozen=True)
class Pair:
    """A source and a target, as text and as tokens."""

    location: str
    """The file and the line, from 1 on: a.en:12."""
    source: str
    target: str
    segments: list[tuple[Ids, Ids]]
    """Source and target tokens of each segment that was translated separately. There is only one, unless the
    output of `translate --json` lists several.
    """


@dataclass(frozen=True)
class Scored:
    """The probability that the model gives one pair."""

    source: str
    target: str
    log_prob: float
    """Natural logarithm of the target's probability: the sum over its tokens and the end of the sentence."""
    score: float
    """log_prob / length penalty, averaged over the segments; translate prints it for a beam search."""
    tokens: list[str]
    token_log_probs: list[float]
    """The log-probability of each token, and of the end of each segment."""

    @property
    def ppl(self) -> float:
        """Perplexity per token, the end of the sentence counted."""
        return math.exp(-self.log_prob / max(1, len(self.token_log_probs)))


def pairs_of_files(
    translator: Translator, source: str, target: str, most: int, tag: str | None = None
) -> Iterator[list[Pair]]:
    """The pairs of two line-aligned files in lists of at most `most`, with the tag before each source.
    InputError if one file is longer.
    """
    lines = enumerate(zip_longest(read_lines(source), read_lines(target)), start=1)
    while chunk := list(islice(lines, most)):
        for number, pair in chunk:
            if None in pair:
                shorter = source if pair[0] is None else target
                raise InputError(
                    f"{shorter}: must have as many lines as the other file, but ends at line {number - 1}"
                )
        texts = [(src or "", tgt or "") for _, (src, tgt) in chunk]
        encoded = zip(
            translator.encode_src([src for src, _ in texts], tag),
            translator.tokenizer.encode_tgt([tgt for _, tgt in texts]),
        )
        yield [
            Pair(location=f"{source}:{number}", source=src, target=tgt, segments=[ids])
            for (number, _), (src, tgt), ids in zip(chunk, texts, encoded)
        ]


def pairs_of_json(translator: Translator, path: str, most: int) -> Iterator[list[Pair]]:
    """The pairs of a file that `translate --json` wrote, with the tokens the model chose; encoding the
    text again could give other tokens.
    """
    lines = enumerate(read_lines(path), start=1)
    ids = {piece: i for i, piece in enumerate(translator.tokenizer.all_pieces_tgt)}
    while chunk := list(islice(lines, most)):
        pairs = []
        for number, line in chunk:
            try:
                facts = json.loads(line)
                source, target, pieces = facts["source"], facts["translation"], facts["tokens"]
                parts = facts.get("segments") or [{"source": source, "tokens": len(pieces)}]
                sources, sizes = [part["source"] for part in parts], [int(part["tokens"]) for part in parts]
                is_split = "protected_split" in facts["flags"]
                strange = [piece for piece in pieces if piece not in ids]
                damaged = not all(isinstance(text, str) for text in sources)
                if damaged or (sum(sizes) != len(pieces) and not is_split):
                    raise ValueError
                tag = facts.get("tag")
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{path}:{number}: is not a line of JSON that translate wrote") from None
            if is_split:
                raise InputError(
                    f"{path}:{number}: cannot be scored, because the text around protected text was "
                    "translated separately (flag protected_split); leave this line out"
                )
            if strange:
                raise InputError(
                    f"{path}:{number}: {strange[0]!r} is not a token of this model; was the file written "
                    "with another model?"
                )
            # No model translated it: it is unchanged, such as a number, or from a translation memory.
            is_fixed = not {"unchanged", "memory"}.isdisjoint(facts["flags"])
            if not pieces and (is_fixed or not source.strip()):
                sources, sizes = [], []
            encoded = translator.encode_src(sources, tag)
            tokens = iter(ids[piece] for piece in pieces)
            segments = [(src, list(islice(tokens, size))) for src, size in zip(encoded, sizes)]
            pairs.append(Pair(f"{path}:{number}", source, target, segments))
        yield pairs


def score(translator: Translator, pairs: Sequence[Pair]) -> list[Scored]:
    """The probability of each pair, in order. InputError names a pair longer than the model can take."""
    most = translator.max_positions
    for pair in pairs:
        longest = max((len(ids) + 1 for segment in pair.segments for ids in segment), default=0)
        if most and longest > most:
            raise InputError(f"{pair.location}: each side must have at most {most} tokens, but has {longest}")
    penalty = LengthPenalty(translator.decode.length_penalty, translator.decode.length_penalty_form)
    of_segments = iter(translator.token_log_probs([segment for pair in pairs for segment in pair.segments]))
    results = []
    for pair in pairs:
        log_probs = [next(of_segments) for _ in pair.segments]
        scores = [sum(values) / penalty(len(values)) for values in log_probs]
        flat = [value for values in log_probs for value in values]
        results.append(
            Scored(
                source=pair.source,
                target=pair.target,
                log_prob=sum(flat),
                score=sum(scores) / max(1, len(scores)),
                tokens=translator.tokenizer.pieces_tgt([token for _, tgt in pair.segments for token in tgt]),
                token_log_probs=flat,
            )
        )
    return results


@dataclass(frozen=True)
class Expected:
    """The chrF that a text probably has, from 0 to 100."""

    chrf: float
    low: float
    """It is between `low` and `high` with a probability of 95 %."""
    high: float
    sentences: int
    """The number of lines that have a confidence."""

    def __str__(self) -> str:
        return f"expected chrF {self.chrf:.1f} [{self.low:.1f}, {self.high:.1f}]"


_MAX_DISTANCE, _MORE_FOR_FEW_LINES = 0.5, 2.0
"""No chrF is estimated for a text whose lines are on average more than _MAX_DISTANCE + _MORE_FOR_FEW_LINES /
sqrt(lines) standard deviations from the usual ones; the mean of a few lines varies more.
"""


class ExpectedQuality:
    """Sums over the lines of a text, from which its chrF is estimated: the mean confidence of the lines,
    weighted by length as in chrF.
    """

    def __init__(self, calibration: Calibration | None) -> None:
        self._calibration = calibration
        self._confidence = self._length = self._squares = self._distance = 0.0
        self._sentences = self._unfamiliar = 0

    def add(self, result: Translation) -> None:
        """Count a line."""
        if result.confidence is not None:
            length = len(result.translation)
            self._confidence += length * result.confidence
            self._length += length
            self._squares += length**2
            self._distance += length * (result.distance or 0.0)
            self._sentences += 1
            self._unfamiliar += "unfamiliar" in result.flags

    @property
    def expected(self) -> Expected | None:
        """The estimate; None if no line has a confidence, if the calibration says nothing about texts, or if
        `withheld` gives a reason, such as a text unlike those the model was trained on.
        """
        errors = self._calibration and self._calibration.errors
        if not errors or not self._length or self.withheld:
            return None
        chrf = self._confidence / self._length + errors.shift
        # Errors of single lines average out in a long text, but the error that all its lines share does not.
        # If the lines are on average one standard deviation from the usual, it may be as large as the error
        # of a single line.
        unknown = errors.spread * max(0.0, self._distance / self._length)
        variance = errors.drift**2 + errors.spread**2 * self._squares / self._length**2 + unknown**2
        half = 1.96 * variance**0.5
        values = (min(1.0, max(0.0, value)) for value in (chrf, chrf - half, chrf + half))
        chrf, low, high = (round(100 * value, 2) for value in values)
        return Expected(chrf, low, high, self._sentences)

    @property
    def withheld(self) -> str | None:
        """The reason why no chrF is estimated although lines have a confidence; None if there is none."""
        if not self._length or self._calibration is None:
            return None
        if self._calibration.is_saturated:
            return (
                "chrF cannot be estimated: nearly all translations of the validation set are right, so the "
                "model's confidence says nothing about other texts"
            )
        lines = self._length**2 / self._squares  # fewer than there are, if some are much longer
        if self._distance / self._length <= _MAX_DISTANCE + _MORE_FOR_FEW_LINES / lines**0.5:
            return None
        return (
            "chrF cannot be estimated: the text is unlike what the model was trained on "
            f"({self._unfamiliar:,} of {self._sentences:,} lines are unfamiliar)"
        )
