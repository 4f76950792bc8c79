"""Lines whose translation looks wrong are translated again, by a wider search that does not repeat itself."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from transformer_mt.config import DecodeConfig
from transformer_mt.translation.result import Translation

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
    """The results of all lines, of those that look wrong the better of two translations. The first result
    comes when all lines are done.
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
    """The second, unless it has more flags or is empty; the other is recorded in it."""
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
