"""Sampling translations from a model's distribution, cut to its likely part.

Letters: B sentences, W samples of each, N = B x W rows, V vocabulary, L most tokens.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.search.beam import SpecialIds, State, Step
from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, NotFiniteError, ranked
from transformer_mt.search.rules import Rule


@dataclass(frozen=True)
class Distribution:
    """Which part of the model's distribution is drawn from."""

    temperature: float = 1.0
    """Log-probabilities are divided by it: below 1 likely tokens become likelier."""
    top_k: int = 0
    """Only the k likeliest tokens; 0 is all (Fan et al. 2018)."""
    top_p: float = 1.0
    """Only the likeliest tokens that together have at least this probability (Holtzman et al. 2020)."""

    def __call__(self, log_probs: Tensor) -> Tensor:
        """(N, V) log-probabilities -> (N, V) probabilities that sum to one; impossible tokens stay
        impossible.
        """
        log_probs = log_probs / self.temperature
        if self.top_k and self.top_k < log_probs.size(-1):
            least = log_probs.topk(self.top_k, dim=-1).values[:, -1:]
            log_probs = log_probs.masked_fill(log_probs < least, -torch.inf)
        probs = log_probs.softmax(dim=-1)
        if self.top_p < 1.0:
            falling, order = probs.sort(dim=-1, descending=True)
            before = falling.cumsum(dim=-1) - falling  # a token is out when those before it are enough
            probs = probs.masked_fill((before >= self.top_p).gather(-1, order.argsort(dim=-1)), 0.0)
            probs = probs / probs.sum(dim=-1, keepdim=True)
        return probs


@torch.inference_mode()
def sample(
    step: Step[State],
    state: State,
    max_lengths: Sequence[int],
    ids: SpecialIds,
    generators: Sequence[Sequence[random.Random]],
    distribution: Distribution = Distribution(),
    penalty: LengthPenalty = LengthPenalty(),
    rules: Sequence[Rule] = (),
    device: torch.device | None = None,
) -> list[list[Hypothesis]]:
    """For each sentence one translation per generator in `generators[b]`, best first, without those that the
    rules leave no token; `state` has one row per sentence.

    Each sample is drawn with its own generator, one number per token, so that it does not depend on other
    samples. At `max_lengths[b]` tokens a sample can only end. Samples are ranked by log_prob /
    penalty(length).
    """
    B, W = len(max_lengths), len(generators[0])
    state = state.select(torch.arange(B, device=device)[:, None].expand(B, W))  # type: ignore[assignment]
    sentences = torch.arange(B, device=device).repeat_interleave(W)
    limits = torch.tensor(max_lengths, device=device)[sentences]
    drawn = torch.full((B * W, 1), ids.bos, device=device)  # (N, 1 + t)
    log_prob = torch.zeros(B * W, device=device)
    alive = torch.ones(B * W, dtype=torch.bool, device=device)
    is_broken = torch.zeros((), dtype=torch.bool, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    searched = list(range(B))  # the sentences of the batch
    for length in range(1, max(max_lengths) + 1):
        # 1. The model's log-probability of each next token, and what the rules make of it.
        logits, state = step(drawn[:, -1], state)
        model_log_probs = F.log_softmax(logits.float(), dim=-1)
        is_broken |= model_log_probs[:, 0].isnan().any()
        model_log_probs[:, list(ids.never)] = -torch.inf  # first: some rules rank the tokens
        allowed = model_log_probs.clone()
        for rule in rules:
            rule(drawn[:, 1:], allowed, sentences)
        only_eos = torch.full_like(allowed[:1], -torch.inf)
        only_eos[:, ids.eos] = 0.0
        stuck = ~torch.isfinite(allowed).any(dim=-1)  # the rules have left nothing: this sample cannot end
        allowed = torch.where(((limits <= length) | stuck | ~alive)[:, None], only_eos, allowed)

        # 2. The first token at which the summed probability exceeds a random number.
        numbers = [generator.random() for sentence in searched for generator in generators[sentence]]
        summed = distribution(allowed).cumsum(dim=-1)
        # In float32 a number may round to 1. It must stay below the total sum to select a possible token.
        number = torch.tensor(numbers, device=device)[:, None].clamp(max=1 - 2**-23) * summed[:, -1:]
        token = torch.searchsorted(summed, number, right=True).clamp(max=allowed.size(-1) - 1)
        log_prob = log_prob + model_log_probs.gather(1, token)[:, 0].masked_fill(~alive, 0.0)
        drawn = torch.cat([drawn, token], dim=1)

        # 3. Samples that end are finished; sentences all of whose samples are, leave.
        ends = alive & (token[:, 0] == ids.eos)
        for row in (ends & ~stuck).nonzero()[:, 0].tolist():
            value = log_prob[row].item()
            results[searched[row // W]].append(
                Hypothesis(drawn[row, 1:].tolist(), value, value / penalty(length))
            )
        alive = alive & ~ends
        stay = alive.view(-1, W).any(dim=1).nonzero()[:, 0]
        if not len(stay):
            break
        if len(stay) < len(searched):
            rows = stay[:, None] * W + torch.arange(W, device=device)
            state = state.select(rows)  # type: ignore[assignment]
            flat = rows.flatten()
            drawn, log_prob, alive, limits, sentences = (
                x[flat] for x in (drawn, log_prob, alive, limits, sentences)
            )
            searched = [searched[i] for i in stay.tolist()]
    if not all(results) and is_broken:
        raise NotFiniteError
    return [ranked(hypotheses) for hypotheses in results]
