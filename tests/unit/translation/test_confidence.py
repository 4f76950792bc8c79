"""Confidence means what it says: it is fitted on one half of the sentences and measured on the other."""

import json

import numpy as np
import pytest

from transformer_mt.evaluation.calibration import expected_error, fit
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.stages.confidence import Calibration


def sample(intercept, slope, count=4000, seed=0):
    """(log-probabilities of a piece, chrF) of a model whose quality is that function of its probabilities."""
    generator = np.random.default_rng(seed)
    per_piece = -generator.gamma(2.0, 0.4, count)
    mean = 1 / (1 + np.exp(-(intercept + slope * per_piece)))
    return per_piece, generator.beta(8 * mean, 8 * (1 - mean))


def test_the_fit_finds_the_function_that_made_the_sample():
    found = fit(*sample(0.8, 1.5))
    assert found.calibration.intercept == pytest.approx(0.8, abs=0.1)
    assert found.calibration.slope == pytest.approx(1.5, abs=0.1)
    assert found.error_after < 0.02 < 0.05 < found.error_before
    assert found.sentences == 2000


def test_the_error_is_of_sentences_that_were_not_fitted():
    per_piece, quality = sample(0.8, 1.5)
    quality[1::2] = 0.0  # what is true of one half says nothing about the other
    assert fit(per_piece, quality).error_after == pytest.approx(quality[::2].mean(), abs=0.02)


def test_a_likelier_translation_is_never_less_sure():
    found = fit(*sample(0.5, -2.0)).calibration
    assert found.slope == 0.0 and 0.6 < found.confidence(-1.0, 1) == found.confidence(-9.0, 3) < 1.0


def test_outputs_that_are_all_alike_have_a_finite_fit():
    found = fit(np.full(100, -0.5), np.full(100, 1.0)).calibration
    assert np.isfinite([found.intercept, found.slope, found.low]).all() and found.confidence(-0.5, 1) > 0.8


def test_the_doubts_of_a_model_that_is_nearly_always_right_are_few():
    found = fit(np.linspace(-0.2, -0.001, 400), np.linspace(0.9, 1.0, 400)).calibration
    assert found.low == 0.5 and found.confidence(-0.2, 1) > 0.8


def test_one_in_twenty_is_low():
    per_piece, quality = sample(0.8, 1.5)
    found = fit(per_piece, quality).calibration
    low = [found.confidence(value, 1) < found.low for value in per_piece]
    assert np.mean(low) == pytest.approx(0.05, abs=0.002)


def test_the_expected_error_is_the_mean_distance_in_ten_parts():
    confidence = np.repeat([0.1, 0.9], 50)
    assert expected_error(confidence, np.repeat([0.2, 0.7], 50)) == pytest.approx(0.15)
    assert expected_error(confidence, confidence) == 0.0


def test_a_file_that_is_none_gives_no_confidence(tmp_path):
    assert Calibration.load(RunFolder(tmp_path)) is None
    for text in ("{", "[]", '{"intercept": 1}', '{"intercept": "x", "slope": 1, "low": 0}'):
        (tmp_path / "calibration.json").write_text(text, encoding="utf-8")
        assert Calibration.load(RunFolder(tmp_path)) is None
    (tmp_path / "calibration.json").write_text(
        json.dumps({"intercept": 0.0, "slope": 1.0, "low": 0.2}), encoding="utf-8"
    )
    found = Calibration.load(RunFolder(tmp_path))
    assert found.confidence(0.0, 5) == 0.5 and found.confidence(-1e9, 1) == pytest.approx(0.0)
