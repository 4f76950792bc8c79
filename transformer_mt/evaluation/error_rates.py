"""Exact match, and word and character error rate by jiwer: for outputs of which one is right."""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from transformer_mt.config.evaluate_section import EvaluateConfig
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metric import MeanMetric, References, Statistics


class ExactMatch(MeanMetric):
    """The share of outputs that are one of their references, in per cent; spaces at the ends do not count."""

    name = "exact match"

    def __init__(self, lowercase: bool) -> None:
        self._lowercase = lowercase

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """(1 or 0, 1) of each sentence."""
        pairs = zip(translations, references)
        return np.array(
            [
                (any(self._key(output) == self._key(reference) for reference in expected), 1)
                for output, expected in pairs
            ],
            np.float64,
        )

    def _key(self, text: str) -> str:
        return text.strip().lower() if self._lowercase else text.strip()

    def signature(self, references: References) -> str:
        """In sacreBLEU's form."""
        return _signature(references, self._lowercase)


class ErrorRate(MeanMetric):
    """Substitutions, deletions and insertions in per cent of the words (WER) or characters (CER) of the
    reference; of several references that with the lowest rate counts.
    """

    higher_is_better = False

    def __init__(self, name: str, lowercase: bool) -> None:
        """`name` is WER or CER. InputError names the extra if jiwer is missing."""
        try:
            import jiwer
        except ImportError:
            raise InputError(f"{name} needs jiwer: pip install 'transformer-mt[metrics]'") from None
        self.name, self._lowercase = name, lowercase
        self._align: Callable[[str, str], Any] = (
            jiwer.process_words if name == "WER" else jiwer.process_characters
        )

    def statistics(
        self, sources: Sequence[str], translations: Sequence[str], references: References
    ) -> Statistics:
        """(errors, words or characters of the reference) of each sentence."""
        return np.array(
            [
                min((self._errors(output, reference) for reference in expected), key=_rate)
                for output, expected in zip(translations, references)
            ],
            np.float64,
        )

    def _errors(self, output: str, reference: str) -> tuple[int, int]:
        if self._lowercase:
            output, reference = output.lower(), reference.lower()
        alignment = self._align(" ".join(reference.split()), " ".join(output.split()))
        errors = alignment.substitutions + alignment.deletions + alignment.insertions
        return errors, alignment.hits + alignment.substitutions + alignment.deletions

    def signature(self, references: References) -> str:
        """In sacreBLEU's form, with jiwer's version."""
        return f"{_signature(references, self._lowercase)}|jiwer:{version('jiwer')}"


def exact_match(rules: EvaluateConfig, target_lang: str) -> ExactMatch:
    """The share of translations that equal a reference."""
    return ExactMatch(rules.lowercase)


def wer(rules: EvaluateConfig, target_lang: str) -> ErrorRate:
    """Word errors (substitutions, insertions, deletions) per word of the nearest reference."""
    return ErrorRate("WER", rules.lowercase)


def cer(rules: EvaluateConfig, target_lang: str) -> ErrorRate:
    """Character errors per character of the nearest reference."""
    return ErrorRate("CER", rules.lowercase)


def _rate(errors: tuple[int, int]) -> float:
    return errors[0] / max(1, errors[1])


def _signature(references: References, lowercase: bool) -> str:
    counts = {len(sentence) for sentence in references}
    number = counts.pop() if len(counts) == 1 else "var"
    return f"nrefs:{number}|case:{'lc' if lowercase else 'mixed'}"
