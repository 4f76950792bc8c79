import math

import pytest
import torch

from tests.helpers.table import BOS, EOS, IDS, History, every_sequence, search, table_model
from transformer_mt.search.beam import SpecialIds, top_k
from transformer_mt.search.hypothesis import LengthPenalty


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("alpha, form", [(0.0, "plain"), (0.6, "plain"), (0.8, "gnmt")])
def test_beam_equals_exhaustive_search(seed, alpha, form):
    """With a beam as wide as there are sequences."""
    logits, step, state = table_model(seed)
    expected = every_sequence(logits, 0, 4, LengthPenalty(alpha, form))
    (found,) = search(step, state, [4], IDS, beam=len(expected), penalty=LengthPenalty(alpha, form))
    assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-5)


@pytest.mark.parametrize("beam, check_every", [(1, 1), (3, 1), (2, 2), (2, 3), (2, 8)])
def test_sentences_do_not_disturb_each_other(beam, check_every):
    """Searched together, of different lengths and done at different times, each finds what it finds alone. A
    GPU is asked seldom whether all are done; what a finished sentence goes on finding must not count.
    """
    _, step, state = table_model(seed=3, num_sentences=8)
    limits = [3, 9, 1, 6, 9, 2, 8, 5]
    together = search(step, state, limits, IDS, beam=beam, check_every=check_every)
    for sentence, limit in enumerate(limits):
        alone = History(torch.tensor([sentence]), [()])
        assert search(step, alone, [limit], IDS, beam=beam) == [together[sentence]]


def test_finished_sentences_leave_the_batch():
    sizes = []
    _, step, state = table_model(seed=3, num_sentences=4)

    def counting(tokens, state):
        sizes.append(len(tokens))
        return step(tokens, state)

    search(counting, state, [1, 2, 5, 5], IDS, beam=2)
    assert sizes[:3] == [4, 6, 4]


def test_banned_tokens_are_never_chosen():
    _, step, state = table_model(seed=2)
    (found,) = search(step, state, [5], SpecialIds(BOS, EOS, never=(2, 3)), beam=3)
    assert {token for h in found for token in h.tokens} <= {4, EOS}


def test_length_penalties_by_hand():
    assert [LengthPenalty(alpha)(4) for alpha in (0.0, 0.5, 1.0)] == [1, 2, 4]
    assert [LengthPenalty(alpha, "gnmt")(7) for alpha in (1.0, 2.0)] == [2, 4]


def test_the_best_of_many_are_found_by_blocks():
    torch.manual_seed(0)
    for columns in (1280, 1300, 5000, 40_003):
        values = torch.randn(3, columns)
        values[1, 7:] = -torch.inf
        best, positions = top_k(values, 10)
        expected = values.topk(10)
        assert torch.equal(best, expected.values)
        assert torch.equal(values.gather(1, positions), best)
    best, positions = top_k(torch.tensor([[1.0, 3.0]]), 4)
    assert best.tolist() == [[3.0, 1.0, -torch.inf, -torch.inf]] and positions.tolist() == [[1, 0, 0, 0]]


def plain_beam(logits, limit, beam, stop_early=False):
    """(score, tokens) of the hypotheses of one sentence that ended, best first: the same search in lists."""
    penalty = LengthPenalty()
    alive, ended = [(0.0, (BOS,))], []
    for length in range(1, limit + 1):
        continuations = [
            (total + log_prob, (*history, token))
            for total, history in alive
            for token, log_prob in enumerate(logits(0, history).tolist())
            if log_prob > -math.inf and (length < limit or token == EOS)
        ]
        best = sorted(continuations, reverse=True)[: 2 * beam]
        ended += [
            (total / penalty(length), history[1:]) for total, history in best[:beam] if history[-1] == EOS
        ]
        alive = [(total, history) for total, history in best if history[-1] != EOS][:beam]
        enough = len(ended) >= beam
        leads = bool(alive and ended) and alive[0][0] / penalty(length) > max(ended)[0]
        if not alive or (enough and (stop_early or not leads)):
            break
    return sorted(ended, reverse=True)


@pytest.mark.parametrize("stop_early", [False, True])
@pytest.mark.parametrize("beam", [1, 2, 4])
@pytest.mark.parametrize("seed", range(10))
def test_beam_search_equals_one_in_lists(seed, beam, stop_early):
    """The n best are the best of all that ended, also where better and worse ones end in turn, and the search
    waits for a leader.
    """
    logits, step, state = table_model(seed)
    (found,) = search(step, state, [7], IDS, beam=beam, stop_early=stop_early)
    expected = plain_beam(logits, 7, beam, stop_early)[:beam]
    assert [tuple(h.tokens) for h in found] == [tokens for _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)
