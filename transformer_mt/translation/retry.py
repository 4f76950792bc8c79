"""Lines whose translation looks wrong are translated again, by a wider search that does not repeat itself."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_mt.translation.result import Options, Translation
from transformer_mt.translation.translator import Translator

RETRIED_FLAGS = frozenset({
    "none", "cut", "repeating", "length_ratio", "missing_number", "missing_url", "low_confidence",
})  # fmt: skip
"""Flags of a translation that is tried again."""
# Chosen on lines that looked wrong (docs/measurements/experiments.md).
_BEAM, _NGRAM, _LONGER = 10, 3, 0.3
_MOST_BEAM = 1000


class RetryingTranslator(Translator):
    """A Translator that translates suspicious lines twice, keeps one translation and records both."""

    def __init__(self, translator: Translator) -> None:
        self.__dict__.update(vars(translator))
        self._again = copy.copy(translator)
        decode = translator.decode
        self._again.decode = decode.model_copy(
            update={
                "search": "beam",
                "beam": min(_MOST_BEAM, max(_BEAM, 2 * decode.beam, decode.samples)),
                "length_penalty": min(10.0, decode.length_penalty + _LONGER),
                "no_repeat_ngram": decode.no_repeat_ngram or _NGRAM,
            }
        )

    def towards(self, target: str | None, source: str | None = None) -> Translator:
        """As `Translator.towards`, of both searches."""
        other = super().towards(target, source)
        assert isinstance(other, RetryingTranslator)
        other._again = self._again.towards(target, source)
        return other

    def check(self, options: Options) -> None:
        """InputError, before any work, if the options do not fit one of the searches."""
        super().check(options)
        self._again.check(options)

    def stream(
        self, lines: Sequence[str], options: Options = Options(), max_length: int | None = None
    ) -> Iterator[Translation]:
        """As `Translator.stream`, but the first result comes when all lines are done."""
        results = list(super().stream(lines, options, max_length))
        wrong = [i for i, result in enumerate(results) if RETRIED_FLAGS & set(result.flags)]
        again = self._again.stream([lines[i] for i in wrong], _options_of(options, wrong), max_length)
        for i, second in zip(wrong, list(again)):
            results[i] = _better(results[i], second)
        yield from results


def _options_of(options: Options, lines: Sequence[int]) -> Options:
    prefixes, protect = options.prefixes, options.protect
    if prefixes is not None:
        prefixes = [prefixes[i] for i in lines]
    if protect and not isinstance(protect, str):
        protect = [protect[i] for i in lines]
    return replace(options, prefixes=prefixes, protect=protect)


def _better(first: Translation, second: Translation) -> Translation:
    """The second, unless it has more flags or is empty; the other is recorded in it."""
    is_second = bool(second.translation.strip()) and _suspicions(second) <= _suspicions(first)
    kept, other = (second, first) if is_second else (first, second)
    record = {
        "translation": other.translation, "score": other.score, "log_prob": other.log_prob,
        "confidence": other.confidence, "flags": other.flags, "is_first": is_second,
    }  # fmt: skip
    why = ", ".join(flag for flag in first.flags if flag in RETRIED_FLAGS)
    problem = f"translated again ({why}); the {'second' if is_second else 'first'} translation was kept"
    return replace(kept, problems=[*kept.problems, problem], other=record)


def _suspicions(result: Translation) -> int:
    return len(RETRIED_FLAGS & set(result.flags))
