"""The tests of significance keep what they promise about chance."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from transformer_mt.companions.lab.comparison import (
    System,
    bootstrap_p,
    bootstrap_values,
    compare,
    holm,
    interval,
    randomisation_p,
)
from transformer_mt.config.decode_section import EvaluateConfig
from transformer_mt.corpora.held_out import EvaluationSet
from transformer_mt.evaluation.metrics import ExactMatch, build_metrics

TEXT = "the a man woman dog sees hears red small old house garden under behind with and"


def texts(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(TEXT.split(), k=draw.randint(6, 14))) for _ in range(count)]


REFERENCES = texts(200, 0)


def damaged(share, seed):
    """The references with a share of the words replaced."""
    draw = random.Random(seed)
    return [
        " ".join(draw.choice(TEXT.split()) if draw.random() < share else word for word in text.split())
        for text in REFERENCES
    ]


def p_of(metric, baseline, system):
    """(bootstrap, randomisation)"""
    runs = [[metric.statistics(REFERENCES, text, [[r] for r in REFERENCES])] for text in (baseline, system)]
    values = tuple(bootstrap_values(metric, each) for each in runs)
    return bootstrap_p(metric, *runs, values), randomisation_p(metric, runs[0][0], runs[1][0])


@pytest.fixture(scope="module")
def bleu():
    return build_metrics(EvaluateConfig(), "en", ["BLEU"])[0]


def test_identical_outputs_have_a_p_of_one():
    for metric in build_metrics(EvaluateConfig(), "en", ["BLEU", "chrF", "TER", "exact match", "WER"]):
        same = damaged(0.2, 1)
        assert p_of(metric, same, list(same)) == (1.0, 1.0), metric.name


def test_luck_and_skill_are_told_apart(bleu):
    assert min(p_of(bleu, damaged(0.2, 1), damaged(0.2, 2))) > 0.1
    assert max(p_of(bleu, damaged(0.2, 1), damaged(0.35, 2))) < 0.005


@pytest.mark.parametrize("kind, number, tails", [("bs", 0, 2), ("ar", 1, 1)])
def test_p_is_near_sacrebleus(bleu, kind, number, tails):
    """Its bootstrap counts the samples of one tail, its randomisation and both of ours those of two."""
    baseline, system = damaged(0.2, 1), damaged(0.225, 2)
    test = PairedTest(
        [("a", baseline), ("b", system)], {"BLEU": BLEU()}, [REFERENCES], test_type=kind, n_samples=1000
    )
    theirs = test()[1]["BLEU"][1].p_value
    assert 0.03 < theirs < 0.5
    assert p_of(bleu, baseline, system)[number] == pytest.approx(tails * theirs, rel=0.35)


def outcomes(generator, share, sentences=300):
    """Statistics of exact match: (1 or 0, 1) of each sentence."""
    right = generator.random(sentences) < share
    return np.stack([right, np.ones(sentences)], axis=1).astype(float)


def test_with_one_run_each_a_difference_of_luck_is_significant_as_often_as_promised():
    generator, metric = np.random.default_rng(0), ExactMatch(lowercase=False)
    found = {"bootstrap": 0, "randomisation": 0}
    for _ in range(200):
        a, b = outcomes(generator, 0.5), outcomes(generator, 0.5)
        values = tuple(bootstrap_values(metric, [each], 200) for each in (a, b))
        found["bootstrap"] += bootstrap_p(metric, [a], [b], values) <= 0.05
        found["randomisation"] += randomisation_p(metric, a, b, 200) <= 0.05
    assert all(0.015 < count / 200 < 0.1 for count in found.values()), found


def test_with_few_seeds_a_difference_of_luck_is_significant_as_often_as_promised():
    """Each run has a quality of its own, which has more effect than the choice of sentences: seeds that are
    drawn with replacement would call three times three of them different in 30 % of the cases.
    """
    generator, metric = np.random.default_rng(0), ExactMatch(lowercase=False)
    significant = 0
    for _ in range(200):
        systems = [[outcomes(generator, 0.5 + generator.normal(0, 0.1)) for _ in range(3)] for _ in range(2)]
        values = tuple(bootstrap_values(metric, runs, 200) for runs in systems)
        significant += bootstrap_p(metric, *systems, values) <= 0.05
    assert 0.015 < significant / 200 < 0.1


def test_seeds_that_all_win_by_much_are_significant():
    generator, metric = np.random.default_rng(0), ExactMatch(lowercase=False)
    systems = [[outcomes(generator, share) for _ in range(3)] for share in (0.5, 0.7)]
    values = tuple(bootstrap_values(metric, runs) for runs in systems)
    assert bootstrap_p(metric, *systems, values) < 0.01
    contradicting = [[outcomes(generator, s) for s in shares] for shares in ((0.4, 0.6), (0.6, 0.4))]
    values = tuple(bootstrap_values(metric, runs) for runs in contradicting)
    assert bootstrap_p(metric, *contradicting, values) > 0.5


def test_an_interval_has_the_true_score_as_often_as_promised():
    generator, metric = np.random.default_rng(0), ExactMatch(lowercase=False)
    inside = 0
    for _ in range(200):
        run = outcomes(generator, 0.6)
        low, high = interval(bootstrap_values(metric, [run], 200), metric, [run])
        inside += low <= 60 <= high
    assert 0.9 < inside / 200 < 0.99


def test_an_interval_of_several_runs_is_wider_where_they_differ_and_has_only_possible_scores():
    generator, metric = np.random.default_rng(0), ExactMatch(lowercase=False)

    def width(*shares, sentences=1000):
        runs = [outcomes(generator, share, sentences) for share in shares]
        low, high = interval(bootstrap_values(metric, runs), metric, runs)
        assert 0 <= low < high <= 100
        return high - low

    assert width(0.4, 0.5, 0.6) > 2 * width(0.5, 0.5, 0.5)
    assert width(0.02, 0.2, sentences=300) and width(0.8, 0.98, sentences=300)


def test_holm_corrects_for_the_number_of_comparisons():
    # Holm (1979): the smallest times 3, the next times 2, the last times 1; never less than one before.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2] and holm([]) == []


def test_seeds_are_compared_with_the_same_seeds():
    """Each of two variants lost a training; with the seed that both have, the second is better."""
    right, wrong = [["a"] * 30], [["b"] * 30]
    test = EvaluationSet("test", "test", [("x", ("a",))] * 30)
    first, second = [wrong, right], [wrong, right]

    def disagree(**seeds):
        systems = [System(name, runs, seeds=seeds.get(name, ())) for name, runs in zip("ab", (first, second))]
        return compare([test], systems, [ExactMatch(lowercase=False)], samples=20).cells[1].runs_disagree

    assert not disagree(a=(2, 3), b=(1, 2)) and not disagree()
    assert disagree(a=(1, 2), b=(2, 1))
