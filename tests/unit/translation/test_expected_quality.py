"""The chrF that a text probably has: true for texts like those it was fitted on."""

import numpy as np
import pytest

from transformer_mt.evaluation.calibration import text_errors
from transformer_mt.evaluation.metrics import MeanMetric
from transformer_mt.evaluation.scoring import ExpectedQuality
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.confidence import Calibration, TextErrors


class Share(MeanMetric):
    """In per cent: the right characters of a line, of all."""

    name = "share"

    def statistics(self, sources, translations, references):
        raise NotImplementedError

    def signature(self, references):
        return "share"


def sample(texts, lines, shift, spread, drift, seed=0):
    """(statistics, confidence, lengths) of lines of texts whose errors have these sizes."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.4, 0.7, texts * lines)
    shared = np.repeat(generator.normal(0, drift, texts), lines)
    quality = confidence + shift + shared + generator.normal(0, spread, texts * lines)
    lengths = generator.uniform(20, 120, texts * lines)
    return np.stack([quality * lengths, lengths], axis=1), confidence, lengths


def results(confidence, lengths):
    for value, length in zip(confidence, lengths):
        yield Translation("a", "x" * round(length), 0.0, 0.0, ["x"], confidence=value)


def expected(calibration, lines):
    quality = ExpectedQuality(calibration)
    for line in lines:
        quality.add(line)
    return quality.expected


def test_the_errors_of_lines_and_of_texts_are_told_apart():
    errors = text_errors(Share(), *sample(150, 150, shift=0.03, spread=0.1, drift=0.05))
    assert errors.shift == pytest.approx(0.03, abs=0.01)
    assert errors.spread == pytest.approx(0.112, abs=0.01)  # of a line, with what its text shares
    assert errors.drift == pytest.approx(0.05, abs=0.008)
    assert text_errors(Share(), *sample(60, 60, 0.0, 0.1, 0.0)).drift < 0.01


@pytest.mark.parametrize("lines", [5, 50, 500])
def test_nineteen_of_twenty_texts_are_within_their_bounds(lines):
    calibration = Calibration(0.0, 1.0, 0.2, text_errors(Share(), *sample(100, 100, 0.02, 0.1, 0.04)))
    statistics, confidence, lengths = sample(400, lines, 0.02, 0.1, 0.04, seed=1)
    within = []
    for start in range(0, 400 * lines, lines):
        of_text = slice(start, start + lines)
        estimate = expected(calibration, results(confidence[of_text], lengths[of_text]))
        within.append(
            estimate.low <= Share().value(statistics[of_text].sum(axis=0).tolist()) <= estimate.high
        )
    assert np.mean(within) == pytest.approx(0.95, abs=0.03)


def test_long_lines_count_for_more():
    calibration = Calibration(0.0, 1.0, 0.2, TextErrors(0.01, 0.1, 0.02))
    estimate = expected(calibration, results([0.4, 0.8], [10, 30]))
    assert estimate.chrf == 71.0 and estimate.sentences == 2
    half = 196 * (0.02**2 + 0.1**2 * (10**2 + 30**2) / 40**2) ** 0.5
    assert (estimate.low, estimate.high) == pytest.approx((71.0 - half, 71.0 + half), abs=0.01)
    assert str(estimate) == f"expected chrF 71.0 [{estimate.low:.1f}, {estimate.high:.1f}]"


def test_nothing_is_said_without_a_calibration_of_texts_or_a_line_with_a_confidence():
    line = Translation("a", "b", 0.0, 0.0, ["b"], confidence=0.5)
    assert expected(None, [line]) is None
    assert expected(Calibration(0.0, 1.0, 0.2), [line]) is None
    full = Calibration(0.0, 1.0, 0.2, TextErrors(0.0, 0.1, 0.0))
    assert expected(full, [Translation("", "", 0.0, 0.0, [])]) is None
    assert expected(full, [line, Translation("", "", 0.0, 0.0, [])]).sentences == 1


@pytest.mark.parametrize(
    ("distances", "is_withheld"), [([0.4] * 400, False), ([0.8] * 400, True), ([0.8] * 20, False)], ids=str
)
def test_the_estimate_of_an_unusual_text_is_wider_then_withheld(distances, is_withheld):
    """The mean distance of a few lines may be large by chance."""
    calibration = Calibration(0.0, 1.0, 0.2, TextErrors(0.0, 0.1, 0.02))
    usual, unusual = ExpectedQuality(calibration), ExpectedQuality(calibration)
    for distance in distances:
        usual.add(Translation("a", "b", 0.0, 0.0, ["b"], confidence=0.5, distance=-0.1))
        unusual.add(Translation("a", "b", 0.0, 0.0, ["b"], confidence=0.5, distance=distance))
    assert usual.withheld is None
    if is_withheld:
        assert (
            unusual.expected is None
            and "the text is unlike what the model was trained on" in unusual.withheld
        )
    else:
        widths = [quality.expected.high - quality.expected.low for quality in (usual, unusual)]
        assert unusual.withheld is None and widths[1] > 1.2 * widths[0]


def test_a_model_that_is_always_right_on_the_validation_set_promises_nothing():
    quality = ExpectedQuality(Calibration(0.0, 1.0, 0.2, TextErrors(0.0, 0.1, 0.02), is_saturated=True))
    quality.add(Translation("a", "b", 0.0, 0.0, ["b"], confidence=0.99))
    assert quality.expected is None
    assert quality.withheld.startswith(
        "chrF cannot be estimated: nearly all translations of the validation set"
    )


def test_texts_without_translations_have_no_errors():
    statistics, confidence, _ = sample(5, 5, 0.0, 0.1, 0.0)
    assert text_errors(Share(), statistics, confidence, np.zeros(25)) is None
