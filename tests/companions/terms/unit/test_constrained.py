"""Beam search for translations that must have phrases."""

import pytest
import torch

from tests.helpers.table import BOS, EOS, History, every_sequence, table_model
from tests.helpers.table import search as beam_search
from transformer_mt.companions.terms.constrained import Allotted
from transformer_mt.search.hypothesis import LengthPenalty
from transformer_mt.search.rules import MinLength

PHRASES = [[[3]], [[2, 4]], [[4, 4], [3]], [[2, 3], [3, 2]], [[3, 3, 2]], [[2], [2, 3]]]


def search(step, state, max_lengths, phrases=None, continuing=(), **settings):
    """A beam search for translations that have the phrases of each sentence."""
    selection = None if phrases is None else Allotted(phrases, settings["beam"], EOS, continuing)
    return beam_search(step, state, max_lengths, selection=selection, **settings)


def holds(tokens, phrases):
    return all(
        any(list(tokens[i : i + len(phrase)]) == phrase for i in range(len(tokens))) for phrase in phrases
    )


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("phrases", PHRASES, ids=str)
def test_a_wide_beam_finds_what_exhaustive_search_finds(seed, phrases):
    logits, step, state = table_model(seed)
    expected = every_sequence(logits, 0, 4, LengthPenalty(0.8), allowed=lambda body: holds(body, phrases))
    (found,) = search(step, state, [4], phrases=[phrases], beam=200, penalty=LengthPenalty(0.8))
    assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-5)


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("phrases", PHRASES, ids=str)
def test_every_hypothesis_has_the_phrases_whatever_the_beam(beam, phrases):
    for seed in range(5):
        logits, step, state = table_model(seed)
        (found,) = search(step, state, [9], phrases=[phrases], beam=beam)
        assert found and all(holds(h.tokens, phrases) and h.tokens[-1] == EOS for h in found)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        history, total = (BOS,), 0.0
        for token in found[0].tokens:
            total += logits(0, history)[token].item()
            history += (token,)
        assert found[0].log_prob == pytest.approx(total, abs=1e-5)


def test_what_the_usual_search_finds_with_the_phrase_is_found_too():
    """Nothing is forced where the best translation has the phrase anyway."""
    same = 0
    for seed in range(30):
        _, step, state = table_model(seed)
        (usual,) = search(step, state, [8], beam=5)
        phrase = usual[0].tokens[:1]
        if phrase != [EOS]:
            (found,) = search(step, state, [8], phrases=[[phrase]], beam=5)
            assert found[0].score >= usual[0].score - 1e-5
            same += found[0].tokens == usual[0].tokens
    assert same > 15


def test_sentences_do_not_disturb_each_other():
    _, step, state = table_model(seed=3, num_sentences=6)
    limits, phrases = [5, 9, 3, 8, 4, 7], [*PHRASES]
    together = search(step, state, limits, phrases=phrases, beam=3)
    for sentence, limit in enumerate(limits):
        alone = History(torch.tensor([sentence]), [()])
        assert search(step, alone, [limit], phrases=[phrases[sentence]], beam=3) == [together[sentence]]


def test_rules_hold_and_what_does_not_fit_is_not_found():
    _, step, state = table_model(seed=1)
    (found,) = search(step, state, [8], phrases=[[[3]]], beam=3, rules=[MinLength(5, EOS)])
    assert found and all(len(h.tokens) > 5 and 3 in h.tokens for h in found)
    assert search(step, state, [3], phrases=[[[3, 3, 2]]], beam=3) == [[]]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_phrase_is_not_followed_by_what_goes_on_with_its_word(beam):
    for seed in range(10):
        _, step, state = table_model(seed)
        (found,) = search(step, state, [7], phrases=[[[3]]], continuing=[2, 3], beam=beam)
        assert found and not any((3, after) in zip(h.tokens, h.tokens[1:]) for h in found for after in (2, 3))


def test_a_phrase_that_another_one_begins_with_may_go_on():
    """House and front door: Haus, Haustür."""
    for seed in range(10):
        _, step, state = table_model(seed)
        (found,) = search(step, state, [7], phrases=[[[3], [3, 2]]], continuing=[2], beam=3)
        assert found and all(holds(h.tokens, [[3, 2]]) for h in found)
