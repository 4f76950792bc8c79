import itertools
from dataclasses import dataclass

import pytest
import torch

from transformer_mt.decoding.beam import SpecialIds, beam_search
from transformer_mt.decoding.hypothesis import LengthPenalty

BOS, EOS, V = 0, 1, 5
IDS = SpecialIds(BOS, EOS)


@dataclass
class History:
    """A state that remembers each row's sentence and tokens: enough for a model made of a table."""

    sentence: torch.Tensor
    tokens: list[tuple[int, ...]]

    def select(self, rows):
        flat = rows.reshape(-1).tolist()
        return History(self.sentence[flat], [self.tokens[i] for i in flat])


def table_model(seed, num_sentences=1):
    """Random log-probabilities for each sentence and history, and a step function over them."""

    def logits(sentence, history):
        generator = torch.Generator().manual_seed(hash((seed, sentence, history)) % 2**31)
        values = torch.randn(V, generator=generator) * 1.5
        values[BOS] = -torch.inf
        return values.log_softmax(-1)

    def step(tokens, state):
        histories = [history + (token,) for history, token in zip(state.tokens, tokens.tolist())]
        rows = [logits(int(sentence), history) for sentence, history in zip(state.sentence, histories)]
        return torch.stack(rows), History(state.sentence, histories)

    return logits, step, History(torch.arange(num_sentences), [()] * num_sentences)


def every_sequence(logits, sentence, max_length, alpha):
    """All sequences that end by max_length, best first: exhaustive search."""
    found = []
    for length in range(1, max_length + 1):
        for body in itertools.product(range(2, V), repeat=length - 1):
            tokens = (*body, EOS)
            history, total = (BOS,), 0.0
            for token in tokens:
                total += logits(sentence, history)[token].item()
                history += (token,)
            found.append((total / length**alpha, total, list(tokens)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_beam_equals_exhaustive_search(seed, alpha):
    """With a beam as wide as there are sequences."""
    logits, step, state = table_model(seed)
    expected = every_sequence(logits, 0, 4, alpha)
    (found,) = beam_search(step, state, [4], IDS, beam=len(expected), penalty=LengthPenalty(alpha))
    assert [h.tokens for h in found] == [tokens for _, _, tokens in expected]
    assert [h.score for h in found] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
    assert [h.log_prob for h in found] == pytest.approx([total for _, total, _ in expected], abs=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_beam_of_one_is_greedy(seed):
    logits, step, state = table_model(seed)
    (found,) = beam_search(step, state, [7], IDS, beam=1)
    history = (BOS,)
    while history[-1] != EOS:
        token = logits(0, history).argmax().item() if len(history) < 7 else EOS
        history += (token,)
    assert [h.tokens for h in found] == [list(history[1:])]


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_sentences_do_not_disturb_each_other(beam):
    """Searched together, of different lengths and done at different times, each finds what it finds alone."""
    _, step, state = table_model(seed=3, num_sentences=8)
    limits = [3, 9, 1, 6, 9, 2, 8, 5]
    together = beam_search(step, state, limits, IDS, beam=beam)
    for sentence, limit in enumerate(limits):
        alone = History(torch.tensor([sentence]), [()])
        assert beam_search(step, alone, [limit], IDS, beam=beam) == [together[sentence]]


def test_finished_sentences_leave_the_batch():
    sizes = []
    _, step, state = table_model(seed=3, num_sentences=4)

    def counting(tokens, state):
        sizes.append(len(tokens))
        return step(tokens, state)

    beam_search(counting, state, [1, 2, 5, 5], IDS, beam=2)
    assert sizes[:3] == [4, 6, 4]


def test_hypotheses_are_sorted_end_once_and_keep_the_limit():
    _, step, state = table_model(seed=9)
    (found,) = beam_search(step, state, [6], IDS, beam=4)
    assert len(found) == 4
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for hypothesis in found:
        assert hypothesis.tokens.index(EOS) == len(hypothesis.tokens) - 1 < 6
        assert hypothesis.score == hypothesis.log_prob / LengthPenalty(1.0)(len(hypothesis.tokens))


def test_banned_tokens_are_never_chosen():
    _, step, state = table_model(seed=2)
    (found,) = beam_search(step, state, [5], SpecialIds(BOS, EOS, never=(2, 3)), beam=3)
    assert {token for h in found for token in h.tokens} <= {4, EOS}


def test_length_penalty_by_hand():
    assert LengthPenalty(0.0)(4) == 1
    assert LengthPenalty(0.5)(4) == 2
    assert LengthPenalty(1.0)(4) == 4
