"""The options of a translation, its result (the fields that `--json` prints), and whether it is to be
translated again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from transformer_mt.config import DecodeConfig
from transformer_mt.errors import InputError, Setting

if TYPE_CHECKING:
    from transformer_mt.translation.alignment import AlignedSegment


def check_texts(name: str, texts: Any, advice: str = "give a list") -> None:
    """InputError unless they are a sequence of texts."""
    if isinstance(texts, str):
        raise InputError(f"{name} must be a list of texts, but are one text; {advice}")
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise InputError(f"{name} must be texts, but number {number} is {text!r}; an empty one is ''")


@dataclass(frozen=True)
class Options:
    """Options of one call; the settings of the search are in `Translator.decode`."""

    n_best: int = 1
    """Candidates of each line in `Translation.n_best`."""
    prefixes: Sequence[str] | None = None
    """The beginning of each line's translation."""
    align: bool = False
    """Compute alignments."""
    protect: str | Sequence[str | None] | None = None
    """A regular expression, or one for each line; what it matches passes through unchanged."""
    tag: str | None = None
    """A tag of the training corpora, put before each sentence."""
    retry: bool = False
    """Translate suspicious lines again with a wider search and keep the better translation; the first
    result then comes when all lines are done.
    """

    def check(self, settings: DecodeConfig) -> None:
        """InputError if they do not fit the search or one another."""
        most = settings.num_hypotheses
        if not (isinstance(self.n_best, int) and self.n_best >= 1):
            raise InputError(Setting("n_best"), f" must be at least 1, but is {self.n_best!r}")
        check_texts("prefixes", self.prefixes or ())
        patterns = self.protect or ()
        check_texts("protect", [] if isinstance(patterns, str) else [p for p in patterns if p is not None])
        if self.n_best > most:
            width = Setting("decode.beam" if settings.search == "beam" else "decode.samples")
            raise InputError(
                Setting("n_best"), " must be at most ", width, f" ({most}), but is {self.n_best}"
            )
        if broken := next((p for p in self.prefixes or () if "\n" in p or "\r" in p), None):
            raise InputError(f"a prefix must be one line, but is {broken!r}")

    def check_lines(self, count: int) -> None:
        """Raise InputError unless there are as many prefixes and patterns as lines."""
        if self.prefixes is not None and len(self.prefixes) != count:
            raise InputError(
                f"there must be one prefix per line ({count}), but there are {len(self.prefixes)}"
            )
        if self.protect and not isinstance(self.protect, str) and len(self.protect) != count:
            raise InputError(
                f"there must be one pattern per line ({count}), but there are {len(self.protect)}"
            )

    def of_lines(self, lines: Sequence[int]) -> "Options":
        """The options of some of the lines."""
        protect, prefixes = self.protect, self.prefixes
        prefixes = None if prefixes is None else [prefixes[i] for i in lines]
        if protect and not isinstance(protect, str):
            protect = [protect[i] for i in lines]
        return replace(self, prefixes=prefixes, protect=protect)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line."""

    translation: str
    """The text."""
    score: float
    """The number that ranks candidates: log P / length penalty; with search: mbr the expected utility, 0 to
    100.
    """
    log_prob: float
    """Natural logarithm of the probability the model gives it."""
    tokens: list[str]
    """Tokens, without end-of-sentence."""
    aligned: "list[AlignedSegment]" = field(default_factory=list)
    """The words of each segment and of its translation; only if alignments were requested."""


def merge_candidates(candidates: Sequence[Candidate]) -> Candidate:
    """One candidate for consecutive segments: mean score, summed log_prob, all tokens, and no text."""
    return Candidate(
        translation="",
        score=sum(c.score for c in candidates) / max(1, len(candidates)),
        log_prob=sum(c.log_prob for c in candidates),
        tokens=[token for c in candidates for token in c.tokens],
    )


@dataclass(frozen=True)
class Translation:
    """The result of one line: its translation, problems and flags."""

    source: str
    """The line as it was given."""
    translation: str
    """The best translation."""
    score: float
    """Its score, as in Candidate; for several segments, the mean."""
    log_prob: float
    """Natural logarithm of its probability, summed over the segments."""
    tokens: list[str]
    """Its tokens."""
    confidence: float | None = None
    """The chrF that translations of this probability had on the validation set, from 0 to 1; None if the
    model was not calibrated or the line is empty. Lower where the source is unlike the training text.
    """
    distance: float | None = None
    """How far the source is from typical sources of the validation set, in standard deviations of those;
    None if that is not known.
    """
    problems: list[str] = field(default_factory=list)
    """Sentences such as "the translation was stopped ..."; empty without problems."""
    flags: list[str] = field(default_factory=list)
    """One word per problem (empty, unchanged, split, truncated, no_hypothesis, protected_split) and per
    suspicion (docs/how_to/translate.md).
    """
    n_best: list[Candidate] = field(default_factory=list)
    """The n best; the first is this one."""
    source_tokens: list[str] = field(default_factory=list)
    """Tokens of the source; only with alignments."""
    alignment: list[int] = field(default_factory=list)
    """For each of `tokens`, the position in `source_tokens` it attends to most; only on request."""
    other: dict[str, Any] | None = None
    """The translation that was not kept, if the line was translated again."""
    segments: list[dict[str, Any]] = field(default_factory=list)
    """For a line in several segments or in capitals: each `source` as searched and its number of `tokens`."""

    @property
    def num_pieces(self) -> int:
        """Tokens of the translation, with an end-of-sentence for each segment."""
        return len(self.tokens) + max(1, len(self.segments))

    def __str__(self) -> str:
        return self.translation


RETRIED_FLAGS = frozenset({
    "no_hypothesis", "truncated", "repeating", "length_ratio", "missing_number", "missing_url",
    "missing_term", "low_confidence",
})  # fmt: skip
"""Flags of a translation that is tried again."""
# Values tuned on flagged translations (docs/measurements/experiments.md).
_BEAM, _NGRAM, _LONGER = 10, 3, 0.3
_MOST_BEAM = 1000
TranslateAgain = Callable[[Sequence[int], DecodeConfig], list[Translation]]
"""Translates the lines of these numbers with other settings of the search."""


def retried(
    results: Iterator[Translation], settings: DecodeConfig, again: TranslateAgain
) -> Iterator[Translation]:
    """The results of all lines. Lines that look wrong are translated again, and the better translation is
    kept. The first result comes when all lines are done.
    """
    every = list(results)
    wrong = [i for i, result in enumerate(every) if looks_wrong(result)]
    for i, second in zip(wrong, again(wrong, wider(settings)) if wrong else ()):
        every[i] = better(every[i], second)
    yield from every


def wider(decode: DecodeConfig) -> DecodeConfig:
    """The search by which a line is translated again."""
    return decode.model_copy(
        update={
            "search": "beam",
            "beam": min(_MOST_BEAM, max(_BEAM, 2 * decode.beam, decode.samples)),
            "length_penalty": min(10.0, decode.length_penalty + _LONGER),
            "no_repeat_ngram": decode.no_repeat_ngram or _NGRAM,
        }
    )


def looks_wrong(result: Translation) -> bool:
    """True if the line is to be translated again."""
    return bool(RETRIED_FLAGS & set(result.flags))


def better(first: Translation, second: Translation) -> Translation:
    """The second translation, unless it has more flags or is empty; the result records the other one."""
    is_second = bool(second.translation.strip()) and _num_signs(second) <= _num_signs(first)
    kept, other = (second, first) if is_second else (first, second)
    record = {
        "translation": other.translation, "score": other.score, "log_prob": other.log_prob,
        "confidence": other.confidence, "flags": other.flags, "is_first": is_second,
    }  # fmt: skip
    why = ", ".join(flag for flag in first.flags if flag in RETRIED_FLAGS)
    problem = f"translated again ({why}); the {'second' if is_second else 'first'} translation was kept"
    return replace(kept, problems=[*kept.problems, problem], other=record)


def _num_signs(result: Translation) -> int:
    return len(RETRIED_FLAGS & set(result.flags))
