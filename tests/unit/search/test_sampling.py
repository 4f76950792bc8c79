"""Sampling, minimum Bayes risk, and ensembles."""

import math
import random
from collections import Counter

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from tests.helpers.table import EOS, IDS, every_sequence, table_model
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.search.rules import MinLength, NoRepeatNgram, Prefix
from transformer_mt.search.sampling import Distribution, Ensemble, expected_utilities, sample


def generators(count, sentence=0):
    return [random.Random(f"{sentence} {i}") for i in range(count)]


def test_samples_come_as_often_as_the_model_says():
    """4,000 samples against the probabilities of every sequence; of those cut at the limit, all
    that is left.
    """
    logits, step, state = table_model(seed=0)
    (found,) = sample(step, state, [5], IDS, [generators(4000)])
    counts = Counter(tuple(h.tokens) for h in found)
    # Shorter than the limit: drawn, never forced
    for _, log_prob, tokens in every_sequence(logits, 0, 4)[:12]:
        expected = 4000 * math.exp(log_prob)
        assert abs(counts[tuple(tokens)] - expected) < 5 * math.sqrt(expected) + 1
    by_tokens = {tuple(tokens): total for _, total, tokens in every_sequence(logits, 0, 5)}
    for h in found[:200]:
        assert h.log_prob == pytest.approx(by_tokens[tuple(h.tokens)], abs=1e-5)
        assert h.score == h.log_prob / len(h.tokens)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)


def test_a_sample_does_not_depend_on_those_beside_it():
    _, step, state = table_model(seed=1, num_sentences=3)
    together = sample(step, state, [4, 9, 6], IDS, [generators(3, s) for s in range(3)])
    for s, limit in enumerate([4, 9, 6]):
        _, alone_step, alone = table_model(seed=1, num_sentences=3)
        alone = alone.select(torch.tensor([[s]]))
        assert sample(alone_step, alone, [limit], IDS, [generators(3, s)]) == [together[s]]
        assert sample(alone_step, alone, [limit], IDS, [generators(1, s)])[0][0] in together[s]


def test_only_the_likely_part_is_drawn_from():
    log_probs = torch.tensor([[0.5, 0.25, 0.15, 0.1, 0.0]]).log()
    assert Distribution(top_k=2)(log_probs)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0, 0])
    assert Distribution(top_p=0.6)(log_probs)[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0, 0])
    assert Distribution(top_p=0.4)(log_probs)[0].tolist() == [1, 0, 0, 0, 0]
    assert Distribution()(log_probs)[0].tolist() == pytest.approx([0.5, 0.25, 0.15, 0.1, 0.0])
    hot, cold = (Distribution(temperature=t)(log_probs)[0, 0].item() for t in (2.0, 0.5))
    assert hot < 0.5 < cold
    assert cold == pytest.approx(0.25 / (0.25 + 0.0625 + 0.0225 + 0.01))


def test_rules_hold_for_samples_too():
    _, step, state = table_model(seed=3)
    rules = [MinLength(2, EOS), NoRepeatNgram(2), Prefix([[4]])]
    (found,) = sample(step, state, [9], IDS, [generators(50)], rules=rules)
    assert len(found) == 50
    for h in found:
        body = h.tokens[:-1]
        assert body[0] == 4 and len(body) >= 2
        assert len(set(zip(body, body[1:]))) == len(body) - 1


def test_samples_the_rules_leave_no_way_to_end_are_left_out():
    _, step, state = table_model(seed=3)
    rules = [MinLength(50, EOS), NoRepeatNgram(1)]
    assert sample(step, state, [9], IDS, [generators(4)], rules=rules) == [[]]


#


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


#


CONFIG = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=2)


def models(count):
    for seed in range(count):
        torch.manual_seed(seed)
        yield build_model(CONFIG, 20, 20, True, 32).eval()


@torch.inference_mode()
def test_an_ensemble_is_the_mean_of_probabilities():
    a, b = models(2)
    src, tgt = torch.randint(4, 20, (2, 5)), torch.randint(4, 20, (2, 4))
    mean = (a(src, src != 0, tgt).softmax(-1) + b(src, src != 0, tgt).softmax(-1)) / 2
    both = Ensemble([a, b])
    torch.testing.assert_close(both(src, src != 0, tgt).exp(), mean)
    state = both.start(both.encode(src, src != 0), src != 0)
    for t in range(4):
        logits, state = both.step(tgt[:, t], state)
        torch.testing.assert_close(logits.exp(), mean[:, t])
