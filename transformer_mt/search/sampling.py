"""Sampling, minimum Bayes risk (the sample that is most similar to all others), and ensembles of models."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.search.beam import Selectable, SpecialIds, State, Step
from transformer_mt.search.hypothesis import Hypothesis, LengthPenalty, NotFiniteError, ranked
from transformer_mt.search.rules import Rule
from transformer_mt.text.languages import has_no_word_spaces


@dataclass(frozen=True)
class Distribution:
    """Part of the model's distribution that is sampled from."""

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
            before = falling.cumsum(dim=-1) - falling  # drop a token if likelier ones already reach top_p
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
    check_every: int = 1,
    device: torch.device | None = None,
    first: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """Returns one translation of each sentence b per generator in `generators[b]`, best first. A sample is
    dropped if the rules forbid every token. `state` has one row per sentence.

    Each sample is drawn with its own generator, one number per token, so that it does not depend on other
    samples. At `max_lengths[b]` tokens a sample can only end. Samples are ranked by log_prob /
    penalty(length). The search checks every `check_every` steps which sentences are done, because on a GPU
    the check synchronises. `first` (B,) are the tokens that translations start from, if not BOS.
    """
    B, W, longest = len(max_lengths), len(generators[0]), max(max_lengths)
    samples = [generator for of_sentence in generators for generator in of_sentence]
    state = state.select(torch.arange(B, device=device)[:, None].expand(B, W))  # type: ignore[assignment]
    never = torch.tensor(ids.never, dtype=torch.int64, device=device)
    # State of the N unfinished rows: tokens, log-probability, final length (0 until the sample ends), whether
    # the sample goes on, token limit of the sentence, and number of the sample
    drawn = torch.full((B * W, 1 + longest), ids.eos, device=device)
    drawn[:, 0] = ids.bos if first is None else first.repeat_interleave(W)
    log_prob = torch.zeros(B * W, device=device)
    ended = torch.zeros(B * W, dtype=torch.int64, device=device)
    alive = torch.ones(B * W, dtype=torch.bool, device=device)
    limits = torch.tensor(max_lengths, device=device).repeat_interleave(W)
    rows, searched = torch.arange(B * W, device=device), list(range(B * W))
    all_samples = drawn.clone(), log_prob.clone(), ended.clone()  # results, filled when sentences are removed
    is_broken = torch.zeros((), dtype=torch.bool, device=device)
    for length in range(1, longest + 1):
        # 1. Compute the model's log-probabilities of the next tokens, and apply the rules.
        logits, state = step(drawn[:, length - 1], state)
        model_log_probs = F.log_softmax(logits.float(), dim=-1)
        is_broken |= model_log_probs[:, 0].isnan().any()
        model_log_probs.index_fill_(1, never, -torch.inf)  # before the rules, as some rank the tokens
        allowed = model_log_probs.clone()
        for rule in rules:
            rule(drawn[:, 1:length], allowed, rows // W)
        only_eos = torch.full_like(allowed[:1], -torch.inf)
        only_eos[:, ids.eos] = 0.0
        stuck = ~torch.isfinite(allowed).any(dim=-1)  # the rules forbid all tokens: drop the sample
        allowed = torch.where(((limits <= length) | stuck | ~alive)[:, None], only_eos, allowed)

        # 2. Take the first token at which the cumulative probability exceeds a random number.
        if (length - 1) % check_every == 0:  # random numbers until the next check, in one copy
            numbers = torch.tensor([[samples[i].random() for _ in range(check_every)] for i in searched])
            if rows.device.type == "cuda":
                numbers = numbers.pin_memory()  # copies from pinned memory are asynchronous
            numbers = numbers.to(rows.device, non_blocking=rows.device.type == "cuda")
        summed = distribution(allowed).cumsum(dim=-1)
        # In float32 a number may round to 1. It must stay below the total sum to select a possible token.
        number = numbers[:, (length - 1) % check_every, None].clamp(max=1 - 2**-23) * summed[:, -1:]
        token = torch.searchsorted(summed, number, right=True).clamp(max=allowed.size(-1) - 1)
        drawn[:, length] = token[:, 0]
        log_prob = log_prob + model_log_probs.gather(1, token)[:, 0].masked_fill(~alive, 0.0)

        # 3. Record the samples that end, and remove sentences whose samples have all ended.
        ends = alive & (token[:, 0] == ids.eos)
        ended = ended + length * (ends & ~stuck)
        alive = alive & ~ends
        if length % check_every == 0:
            kept = alive.view(-1, W).any(dim=1).nonzero()[:, 0]
            if not len(kept):
                break
            if len(kept) * W < len(rows):
                for whole, part in zip(all_samples, (drawn, log_prob, ended)):
                    whole[rows] = part
                rows_kept = kept[:, None] * W + torch.arange(W, device=device)
                state = state.select(rows_kept)  # type: ignore[assignment]
                drawn, log_prob, ended, alive, limits, rows = (
                    part[rows_kept.flatten()] for part in (drawn, log_prob, ended, alive, limits, rows)
                )
                searched = rows.tolist()
    for whole, part in zip(all_samples, (drawn, log_prob, ended)):
        whole[rows] = part
    results: list[list[Hypothesis]] = [[] for _ in range(B)]
    for i, (tokens, value, length) in enumerate(zip(*(part.tolist() for part in all_samples))):
        if length:
            results[i // W].append(Hypothesis(tokens[1 : length + 1], value, value / penalty(length)))
    if not all(results) and is_broken:
        raise NotFiniteError
    return [ranked(hypotheses) for hypotheses in results]


_CHRF_ORDER, _CHRF_BETA, _BLEU_ORDER = 6, 2, 4  # sacreBLEU's defaults


def expected_utilities(
    samples: Sequence[str], utility: Literal["chrf", "bleu"], target_lang: str = "en"
) -> list[float]:
    """The mean utility of each sample against all other samples, from 0 to 100.

    The utilities are sacreBLEU's sentence scores. BLEU counts characters if the language has no spaces
    between words.
    """
    counts = Counter(samples)
    texts = list(counts)
    weights = np.array(list(counts.values()), dtype=np.float64)
    utilities_NN = _chrf(texts) if utility == "chrf" else _bleu(texts, target_lang)
    np.fill_diagonal(utilities_NN, 100.0)
    totals_N = utilities_NN @ weights - 100.0
    expected = dict(zip(texts, (totals_N / max(1, len(samples) - 1)).tolist()))
    return [expected[sample] for sample in samples]


def _chrf(texts: Sequence[str]) -> np.ndarray:
    """Sentence chrF of each text (row) against each (column) (Popović 2015)."""
    characters = ["".join(text.split()) for text in texts]
    precisions, recalls, orders = (np.zeros((len(texts), len(texts))) for _ in range(3))
    for order in range(1, _CHRF_ORDER + 1):
        matches_NN, sizes_N = _matches([_ngrams(text, order) for text in characters])
        both = (sizes_N[:, None] > 0) & (sizes_N[None] > 0)  # skip orders for which a text is too short
        precisions += np.divide(matches_NN, sizes_N[:, None], where=both, out=np.zeros_like(matches_NN))
        recalls += np.divide(matches_NN, sizes_N[None], where=both, out=np.zeros_like(matches_NN))
        orders += both
    # F-score of the means precisions / orders and recalls / orders: one factor `orders` remains.
    weight = _CHRF_BETA**2
    below = (weight * precisions + recalls) * orders
    return np.divide(
        100.0 * (1 + weight) * precisions * recalls, below, where=below > 0, out=np.zeros_like(below)
    )


def _bleu(texts: Sequence[str], target_lang: str) -> np.ndarray:
    """Sentence BLEU of each text (row) against each (column)."""
    from sacrebleu.metrics.bleu import BLEU  # slow to import

    tokenizer = BLEU(tokenize="char" if has_no_word_spaces(target_lang) else "13a").tokenizer
    tokens = [tokenizer(text.rstrip()).split() for text in texts]
    orders = range(1, _BLEU_ORDER + 1)
    by_order = [_matches([_ngrams(words, order) for words in tokens]) for order in orders]
    scores_NN = np.zeros((len(texts), len(texts)))
    for i, hypothesis in enumerate(tokens):
        total = [int(sizes_N[i]) for _, sizes_N in by_order]
        for j, reference in enumerate(tokens):
            correct = [int(matches_NN[i, j]) for matches_NN, _ in by_order]
            scores_NN[i, j] = BLEU.compute_bleu(
                correct, total, len(hypothesis), len(reference), smooth_method="exp", effective_order=True
            ).score
    return scores_NN


def _ngrams(units: str | list[str], order: int) -> Counter[str | tuple[str, ...]]:
    keys = (units[i : i + order] for i in range(len(units) - order + 1))
    return Counter(key if isinstance(key, str) else tuple(key) for key in keys)


def _matches(ngrams: Sequence[Counter[str | tuple[str, ...]]]) -> tuple[np.ndarray, np.ndarray]:
    """Count the n-grams that each pair of texts has in common (N, N), and all n-grams of each text (N,)."""
    distinct = dict.fromkeys(ngram for counts in ngrams for ngram in counts)
    index = {ngram: i for i, ngram in enumerate(distinct)}
    counts_NG = np.zeros((len(ngrams), len(index)))
    for row, counts in enumerate(ngrams):
        counts_NG[row, [index[ngram] for ngram in counts]] = list(counts.values())
    matches_NN = np.stack([np.minimum(counts_N, counts_NG).sum(axis=1) for counts_N in counts_NG])
    return matches_NN, counts_NG.sum(axis=1)


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models, selected from together."""

    states: tuple[Selectable, ...]

    def select(self, rows: Tensor) -> "EnsembleState":
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble(nn.Module):
    """Models with the same vocabulary, with the methods of a single model. Its logits are log-probabilities:
    the log of the mean probability.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, src: Tensor, src_mask: Tensor, tgt_in: Tensor) -> Tensor:
        return _mean([model(src, src_mask, tgt_in) for model in self.models])

    def encode(self, src: Tensor, src_mask: Tensor) -> list[Tensor]:
        return [model.encode(src, src_mask) for model in self.models]  # type: ignore[operator]

    def start(self, memories: list[Tensor], src_mask: Tensor) -> EnsembleState:
        pairs = zip(self.models, memories)
        return EnsembleState(tuple(model.start(memory, src_mask) for model, memory in pairs))  # type: ignore[operator]

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        pairs = zip(self.models, state.states)
        logits, states = zip(*(model.step(tokens, model_state) for model, model_state in pairs))  # type: ignore[operator]
        return _mean(logits), EnsembleState(tuple(states))


def _mean(logits: Sequence[Tensor]) -> Tensor:
    log_probs = torch.stack([F.log_softmax(of_model.float(), dim=-1) for of_model in logits])
    return log_probs.logsumexp(dim=0) - math.log(len(logits))
