"""Fit the confidence of translations on a validation set, and say how well it then fits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config import EvaluateConfig
from transformer_mt.corpora.corpus import EvaluationSentence
from transformer_mt.corpora.held_out import evenly_spaced
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.evaluation.metrics import Metric, Statistics, build_metrics
from transformer_mt.files import to_json, write_text
from transformer_mt.messages import show_progress
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Options
from transformer_mt.translation.stages.confidence import (
    MOST_BITS,
    Calibration,
    Familiarity,
    TextErrors,
    Usual,
    bits_per_letter,
)
from transformer_mt.translator import Translator

LEAST = 50
"""The minimum number of sentences."""
_MOST = 1000
_BINS = 10
# A confidence is low if it is in the lowest twentieth of the validation translations and below _LOW_AT_MOST:
# a model that is nearly always right has few doubtful translations.
_LOW, _LOW_AT_MOST = 0.05, 0.5
# A translation is wrong if its chrF is below _WRONG_BELOW. If fewer than the share _WRONG are wrong, the
# validation set says nothing about the confidence of wrong translations.
_WRONG, _WRONG_BELOW = 0.05, 0.9
_UNFAMILIAR = 0.99
"""The share of the validation sources that are familiar."""
_LEAST_COUNT = 5
"""Rarer tokens are treated as this frequent, so that calibration.json does not tell who the corpora name."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A calibration, and how well it fits sentences it was not fitted on."""

    calibration: Calibration
    sentences: int
    """The number of sentences it was fitted on; as many other sentences show how well it fits."""
    error_before: float
    """Expected calibration error: the mean distance from the chrF, 0 to 1, in ten equal parts of the
    sentences. `error_before` measures the plain probability of a token, `error_after` the confidence.
    """
    error_after: float
    bins: list[tuple[float, float, float]]
    """For each part: the mean confidence, the mean plain probability and the mean chrF."""

    def save(self, folder: RunFolder) -> None:
        facts = {**asdict(self.calibration), **{k: v for k, v in vars(self).items() if k != "calibration"}}
        write_text(folder.calibration_file, to_json(facts, indent=1) + "\n")


SetToFit = tuple[Translator, Sequence[EvaluationSentence], str | None]
"""A validation set: the translator into its language, its sentences, its tag."""


def calibrate(
    sets: Sequence[SetToFit], rules: EvaluateConfig, familiarity: Familiarity | None = None
) -> Fit | None:
    """The confidence of the translators' own search on all sets together; None if they have too few
    sentences. No set gives more than its equal part of them, so that none outweighs the others.
    """
    most = max(1, _MOST // len(sets))
    sets = [(translator, evenly_spaced(rows, most), tag) for translator, rows, tag in sets]
    if sum(len(sentences) for _, sentences, _ in sets) < LEAST:
        return None
    results, by_set = [], []
    for translator, sentences, tag in sets:
        sources = [src for src, _ in sentences]
        stream = translator.stream(sources, Options(tag=tag))
        translated = list(show_progress(stream, "calibration", len(sources), unit="sentences"))
        (chrf,) = build_metrics(rules, translator.target_lang, ["chrF"])
        translations = [result.translation for result in translated]
        by_set.append(chrf.statistics(sources, translations, [targets for _, targets in sentences]))
        results += translated
    statistics = np.concatenate(by_set)
    quality = np.array([chrf.sentence_value(row) for row in statistics.tolist()]) / 100
    per_piece = np.array([result.log_prob / max(1, result.num_pieces) for result in results])
    fitted = fit(per_piece, quality)
    lengths = np.array([len(result.translation) for result in results], np.float64)
    confidence = np.array([fitted.calibration.confidence(value, 1) for value in per_piece])
    held_out = slice(1, None, 2)
    errors = text_errors(chrf, statistics[held_out], confidence[held_out], lengths[held_out])
    is_saturated = bool((quality < _WRONG_BELOW).mean() < _WRONG)
    calibration = replace(
        fitted.calibration, errors=errors, is_saturated=is_saturated, familiarity=familiarity
    )
    return replace(fitted, calibration=calibration)


def fit_familiarity(
    tokenizer: Tokenizer, trained: NDArray[np.integer[Any]], sources: Mapping[str, Sequence[str]]
) -> Familiarity | None:
    """Fit the familiarity on the tokens of the training sources and the validation sources of each language.
    None if no language has enough validation sources.
    """
    counts = np.bincount(trained, minlength=len(tokenizer.all_pieces_src))
    rarity = np.log2(max(1, counts.sum()) / np.maximum(_LEAST_COUNT, counts))
    bits = np.clip(np.round(rarity), 0, MOST_BITS).astype(int)
    bits[list(tokenizer.control_ids.values())] = 0  # tags and languages say nothing of the text
    known = Familiarity("".join(chr(ord("a") + number) for number in bits), {})
    for language, texts in sources.items():
        measured = [known.measured([ids], [text]) for ids, text in zip(tokenizer.encode_src(texts), texts)]
        measured = [(bits, letters) for bits, letters in measured if letters]
        if len(measured) < LEAST:
            continue
        mean = float(np.divide(*np.sum(measured, axis=0)))
        values = np.array([bits_per_letter(bits, letters, mean) for bits, letters in measured])
        if deviation := float(np.sqrt(np.mean((values - mean) ** 2))):
            # One long source that is far from the others may draw the mean beyond their quantile.
            limit = max(float(np.quantile(values, _UNFAMILIAR)), mean + deviation)
            known.usual[language] = Usual(mean, deviation, limit)
    return known if known.usual else None


def fit(per_piece: Values, quality: Values) -> Fit:
    """Fit every second sentence, measure on the others. [sentences] each: the mean log-probability of a
    token, and the chrF from 0 to 1.
    """
    x, y = per_piece[::2], quality[::2]
    intercept, slope = _logistic(x, y)
    inner = Calibration(intercept, slope, 0.0)
    confidence = np.array([inner.confidence(value, 1) for value in per_piece])
    calibration = Calibration(intercept, slope, min(_LOW_AT_MOST, float(np.quantile(confidence, _LOW))))
    held_out, plain, true = confidence[1::2], np.exp(per_piece[1::2]), quality[1::2]
    parts = np.array_split(np.argsort(held_out, kind="stable"), _BINS)
    bins = [(float(held_out[i].mean()), float(plain[i].mean()), float(true[i].mean())) for i in parts]
    return Fit(calibration, len(x), expected_error(plain, true), expected_error(held_out, true), bins)


def text_errors(
    chrf: Metric, statistics: Statistics, confidence: Values, lengths: Values
) -> TextErrors | None:
    """The errors of texts of consecutive lines: n lines make about sqrt(n) texts. None if fewer than two of
    these are non-empty. Each argument has one entry per line; the statistics are of chrF. The variance of a
    text's error is
    `drift`² + `spread`² sum(lengths²) / sum(lengths)².
    """
    quality = np.array([chrf.sentence_value(row) for row in statistics.tolist()]) / 100
    spread = float((quality - confidence).std())
    texts = np.array_split(np.arange(len(lengths)), round(len(lengths) ** 0.5))
    texts = [text for text in texts if lengths[text].sum()]
    if len(texts) < 2:
        return None
    values = np.array([chrf.value(statistics[text].sum(axis=0).tolist()) / 100 for text in texts])
    errors = values - [np.average(confidence[text], weights=lengths[text]) for text in texts]
    of_lines = [(lengths[text] ** 2).sum() / lengths[text].sum() ** 2 for text in texts]
    shared = max(0.0, float(errors.var(ddof=1) - spread**2 * np.mean(of_lines)))
    # The mean of all texts differs from the mean of these, and from the mean of the half that was fitted on.
    unknown = 2 * float(errors.var(ddof=1)) / len(texts)
    return TextErrors(float(errors.mean()), spread, (shared + unknown) ** 0.5)


def expected_error(confidence: Values, quality: Values) -> float:
    """The mean distance of the two in ten parts of equal size, the sentences in order of their confidence."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), _BINS)
    return float(sum(abs(confidence[i].mean() - quality[i].mean()) * len(i) for i in parts) / len(quality))


def _logistic(x: Values, y: Values) -> tuple[float, float]:
    """Fit a logistic regression of y (0 to 1) on x by Newton's method. Returns (intercept, slope)."""
    features = np.stack([np.ones_like(x), x], axis=1)
    weights = np.zeros(2)
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        # A little decay: outputs that are all alike have no finite solution.
        gradient = features.T @ (y - p) - 1e-3 * weights
        curvature = (features.T * (p * (1 - p))) @ features + 1e-3 * np.eye(2)
        step = np.linalg.solve(curvature, gradient)
        weights += step
        if np.abs(step).max() < 1e-9:
            break
    # A likelier translation is never called worse.
    if weights[1] > 0:
        return float(weights[0]), float(weights[1])
    share = min(1 - 1e-6, max(1e-6, float(y.mean())))
    return float(np.log(share / (1 - share))), 0.0
