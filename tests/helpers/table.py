"""A model made of a table, over five tokens: small enough to try every translation there is."""

import itertools
from dataclasses import dataclass

import torch

from transformer_mt.search.beam import BeamSettings, SpecialIds, beam_search
from transformer_mt.search.hypothesis import LengthPenalty

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


def every_sequence(logits, sentence, max_length, penalty=LengthPenalty(), allowed=lambda body: True):
    """(score, log_prob, tokens) of all sequences that end by max_length and are allowed, best first:
    exhaustive search.
    """
    found = []
    for length in range(1, max_length + 1):
        for body in itertools.product(range(2, V), repeat=length - 1):
            if not allowed(body):
                continue
            tokens = (*body, EOS)
            history, total = (BOS,), 0.0
            for token in tokens:
                total += logits(sentence, history)[token].item()
                history += (token,)
            found.append((total / penalty(length), total, list(tokens)))
    return sorted(found, reverse=True)


def search(step, state, max_lengths, ids=IDS, selection=None, **settings):
    """A beam search with these settings."""
    return beam_search(step, state, max_lengths, ids, BeamSettings(**settings), selection=selection)
