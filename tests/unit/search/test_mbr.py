import random

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer_mt.search.sampling import expected_utilities

DRAW = random.Random(0)
WORDS = ["der", "Hund", ",", "schläft", "im", "Garten", ".", "ein", "Kind", "läuft", "&", "singt", "a", "b"]
SAMPLES = [
    "der Hund schläft im Garten",
    "der Hund schläft",
    "eine Katze singt",
    "der Hund schläft im Garten",
    "",
    "x",
    *(" ".join(DRAW.choices(WORDS, k=DRAW.randint(1, 9))) for _ in range(20)),
]


@pytest.mark.parametrize("name, metric", [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_utilities_are_the_mean_over_the_other_samples(name, metric):
    expected = []
    for i, hypothesis in enumerate(SAMPLES):
        others = [
            100.0 if other == hypothesis else metric.sentence_score(hypothesis, [other]).score
            for j, other in enumerate(SAMPLES)
            if j != i
        ]
        expected.append(sum(others) / len(others))
    assert expected_utilities(SAMPLES, name) == pytest.approx(expected)
    few = expected_utilities(SAMPLES[:5], name)
    assert max(few) == few[0] == few[3]


def test_one_sample_has_no_others():
    assert expected_utilities(["x"], "chrf") == [0.0]


def test_a_language_without_spaces_is_compared_by_its_characters():
    alike = expected_utilities(["今天狗在睡觉", "今天狗在家睡觉", "猫"], "bleu", "zh")
    assert alike[0] > 20 and alike[1] > 20 and alike[2] < 10  # all 0 where a sentence is one word
