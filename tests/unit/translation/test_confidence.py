"""Confidence, how familiar a source is, and the quality expected of a text."""

import json

import numpy as np
import pytest

from transformer_mt.config import TokenizerConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.evaluation.calibration import expected_error, fit, fit_familiarity, text_errors
from transformer_mt.evaluation.metrics import MeanMetric
from transformer_mt.evaluation.scoring import ExpectedQuality
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.confidence import Calibration, TextErrors


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


def test_outputs_that_are_all_alike_or_nearly_always_right_have_a_fit_with_few_doubts():
    found = fit(np.full(100, -0.5), np.full(100, 1.0)).calibration
    assert np.isfinite([found.intercept, found.slope, found.low]).all() and found.confidence(-0.5, 1) > 0.8
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


# Sources unlike the training text are known by their pieces.


OTHERS = ["Photosynthesis converts radiation into carbohydrates.", "GDP growth slowed to 0.3 % in Q2."]


@pytest.fixture(scope="module")
def texts():
    return {split: [src for src, _ in toy.generate(split, 800)] for split in ("train", "valid", "test")}


def learnt(texts, *control_pieces):
    return Tokenizer.train([(text, text) for text in texts], TokenizerConfig(vocab_size=900), control_pieces)


@pytest.fixture(scope="module")
def familiarity(texts):
    tokenizer = learnt(texts["train"])
    trained = np.concatenate([np.array(ids) for ids in tokenizer.encode_src(texts["train"])])
    return tokenizer, trained, fit_familiarity(tokenizer, trained, {"en": texts["valid"]})


def distances(familiarity, lines):
    tokenizer, _, known = familiarity
    pieces = tokenizer.encode_src(lines)
    return [known.distance("en", *known.measured([ids], [text])) for ids, text in zip(pieces, lines)]


def test_other_texts_are_beyond_the_limit_and_those_like_the_training_are_not(familiarity, texts):
    limit = familiarity[2].limit("en")
    assert np.mean([one > limit for one in distances(familiarity, texts["test"])]) <= 0.02
    assert all(one > limit for one in distances(familiarity, OTHERS))


def test_nothing_is_said_of_a_language_or_a_line_that_nothing_is_known_of(familiarity):
    known = familiarity[2]
    assert (
        known.distance("fr", 50, 10) is None and known.distance("en", *known.measured([[5]], ["17"])) is None
    )
    assert fit_familiarity(familiarity[0], familiarity[1], {"en": ["too few"] * 49}) is None


def test_a_long_odd_source_does_not_make_the_others_unfamiliar(familiarity, texts):
    """It draws the mean beyond nearly all of them, and the confidence must stay between 0 and 1."""
    tokenizer, trained, _ = familiarity
    odd = "Photosynthesis converts radiation into carbohydrates " * 2000
    known = fit_familiarity(tokenizer, trained, {"en": [*texts["valid"], odd]})
    assert known.limit("en") >= 1


def test_pieces_that_are_rare_look_alike_and_tags_count_nothing(texts):
    """Else calibration.json would tell who is named in a corpus."""
    tokenizer = learnt(texts["train"], "<2de>")
    seen = np.repeat(np.arange(4, 300), 100)
    for count in (0, 1, 4):
        once = fit_familiarity(tokenizer, np.append(seen, np.full(count, 350)), {"en": texts["valid"]})
        assert once.pieces[350] == once.pieces[351] > once.pieces[10]
        assert once.pieces[tokenizer.control_id("<2de>")] == "a"


def test_a_calibration_is_read_as_it_was_written_and_one_of_before_is_read(familiarity, tmp_path):
    facts = {"intercept": 1.0, "slope": 2.0, "low": 0.3}
    file = RunFolder(tmp_path).calibration_file
    file.write_text(json.dumps(facts), encoding="utf-8")
    assert Calibration.load(RunFolder(tmp_path)) == Calibration(1.0, 2.0, 0.3)
    known = familiarity[2]
    usual = {lang: vars(one) for lang, one in known.usual.items()}
    more = {"is_saturated": True, "familiarity": {"pieces": known.pieces, "usual": usual}}
    file.write_text(json.dumps(facts | more), encoding="utf-8")
    read = Calibration.load(RunFolder(tmp_path))
    assert read.is_saturated and read.familiarity == known


# The chrF that a text probably has: true for texts like those it was fitted on.


class Share(MeanMetric):
    """In per cent: the right characters of a line, of all."""

    name = "share"

    def statistics(self, sources, translations, references):
        raise NotImplementedError

    def signature(self, references):
        return "share"


def quality_sample(texts, lines, shift, spread, drift, seed=0):
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
    errors = text_errors(Share(), *quality_sample(150, 150, shift=0.03, spread=0.1, drift=0.05))
    assert errors.shift == pytest.approx(0.03, abs=0.01)
    assert errors.spread == pytest.approx(0.112, abs=0.01)  # of a line, with what its text shares
    assert errors.drift == pytest.approx(0.05, abs=0.008)
    assert text_errors(Share(), *quality_sample(60, 60, 0.0, 0.1, 0.0)).drift < 0.01


@pytest.mark.parametrize("lines", [5, 50])
def test_nineteen_of_twenty_texts_are_within_their_bounds(lines):
    calibration = Calibration(0.0, 1.0, 0.2, text_errors(Share(), *quality_sample(100, 100, 0.02, 0.1, 0.04)))
    statistics, confidence, lengths = quality_sample(400, lines, 0.02, 0.1, 0.04, seed=1)
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
    line, none = Translation("a", "b", 0.0, 0.0, ["b"], confidence=0.5), Translation("", "", 0.0, 0.0, [])
    full = Calibration(0.0, 1.0, 0.2, TextErrors(0.0, 0.1, 0.0))
    assert expected(None, [line]) is expected(Calibration(0.0, 1.0, 0.2), [line]) is None
    assert expected(full, [none]) is None and expected(full, [line, none]).sentences == 1


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
    statistics, confidence, _ = quality_sample(5, 5, 0.0, 0.1, 0.0)
    assert text_errors(Share(), statistics, confidence, np.zeros(25)) is None
