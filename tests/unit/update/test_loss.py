"""The projection and the label-smoothed cross-entropy."""

import math

import pytest
import torch

from tests.helpers.faults import loss_chunks
from tests.helpers.updates import CPU
from transformer_mt.data.batches.batch import Links
from transformer_mt.device import autocast
from transformer_mt.model.interface import NEVER
from transformer_mt.update import chunked_loss
from transformer_mt.update.chunked_loss import projected_cross_entropy
from transformer_mt.update.loss import guided_alignment_loss, plain_cross_entropy


@pytest.mark.parametrize("chunk", [256, 1, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_bias", [False, True])
def test_loss_equals_torchs_in_value_and_gradients(monkeypatch, chunk, smoothing, dtype, has_bias):
    """Whatever the chunks: all at once, one token a chunk, two and a rest of one. What a bias says is never
    written is not in the vocabulary.
    """
    loss_chunks(monkeypatch, chunk)
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(13, 6) * 2, torch.randn(11, 6), torch.randn(11)
    targets = torch.randint(0, 9, (13,))
    bias[9] = NEVER
    losses, gradients = [], []
    for cross_entropy in (projected_cross_entropy, plain_cross_entropy):
        at = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
        at += [bias.clone().requires_grad_()] if has_bias else []
        with autocast(CPU, dtype):
            loss, nll = cross_entropy(*at[:2], targets, smoothing, *at[2:])
        (loss / 7).backward()
        losses.append((loss.item(), nll.item()))
        gradients.append([tensor.grad for tensor in at])
        assert not has_bias or not (at[2].grad[9].any() or at[1].grad[9].any())
    exact = dtype == torch.float32
    assert losses[0] == pytest.approx(losses[1], rel=1e-5 if exact else 2e-2)
    for mine, theirs in zip(*gradients):
        torch.testing.assert_close(mine, theirs, atol=1e-5 if exact else 3e-2, rtol=1e-5 if exact else 3e-2)


def test_loss_gradient_is_that_of_the_function():
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 3, dtype=torch.float64), torch.randn(7, 3, dtype=torch.float64)
    targets = torch.randint(1, 7, (4,))

    def numeric(tensor, i, h=1e-2):
        values = []
        for sign in (1, -1):
            tensor.view(-1)[i] += sign * h
            values.append(projected_cross_entropy(hidden, weight, targets, 0.1)[0].item())
            tensor.view(-1)[i] -= sign * h
        return (values[0] - values[1]) / (2 * h)

    at = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    projected_cross_entropy(*at, targets, 0.1)[0].backward()
    for leaf, tensor in zip(at, (hidden, weight)):
        for i in (0, 5, 11):
            assert leaf.grad.view(-1)[i].item() == pytest.approx(numeric(tensor, i), abs=2e-3)


def gradients(dtype, hidden, weight, targets):
    at = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    with autocast(CPU, dtype):
        loss, _ = projected_cross_entropy(*at, targets, 0.1)
    loss.backward()
    return [tensor.grad for tensor in at]


def test_small_gradients_of_logits_are_not_rounded_to_zero_in_float16():
    """With 60,000 pieces p - target is about 2e-6 for most of them, where float16 has two digits left."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(4, 8) * 0.02, torch.randn(60_000, 8) * 0.02
    targets = torch.randint(0, 60_000, (4,))
    exact, half = (gradients(dtype, hidden, weight, targets)[1] for dtype in (torch.float32, torch.float16))
    others = torch.ones(60_000, dtype=torch.bool)
    others[targets] = False
    error = (half - exact)[others].norm() / exact[others].norm()
    assert error < 0.004  # rounded without the factor: 0.02


def test_the_gradient_of_many_tokens_is_finite_in_float16():
    """The row of a piece that each sentence has gets a part of every token."""
    torch.manual_seed(0)
    hidden, weight = torch.randn(4_000, 8) * 2, torch.randn(50, 8)
    targets = torch.randint(0, 4, (4_000,))
    each = (gradients(dtype, hidden, weight, targets) for dtype in (torch.float32, torch.float16))
    for exact, half in zip(*each):
        assert (half - exact).norm() < 0.004 * exact.norm()


def test_loss_of_a_token_thought_impossible_is_finite():
    hidden, weight = torch.tensor([[300.0]]), torch.tensor([[1.0], [-1.0]])
    loss, nll = projected_cross_entropy(hidden, weight, torch.tensor([1]), 0.1)
    assert loss.isfinite() and nll.item() > 80


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("scale", [1, 30, 1000])
def test_loss_is_the_plain_one_for_logits_of_any_size(monkeypatch, scale, reads):
    """The steps for a GPU, of which no number is read, are others."""
    if not reads:
        monkeypatch.setattr(chunked_loss, "can_be_read", lambda x: False)
    torch.manual_seed(3)
    hidden, weight, targets = scale * torch.randn(40, 16), torch.randn(70, 16), torch.randint(70, (40,))
    loss, nll = projected_cross_entropy(hidden, weight, targets, 0.1)
    plain_loss, plain_nll = plain_cross_entropy(hidden, weight, targets, 0.1)
    torch.testing.assert_close((loss, nll), (plain_loss, plain_nll), rtol=1e-4, atol=1e-3)


def test_the_loss_of_alignments_is_the_cross_entropy_of_the_links():
    """By hand, for a target piece with two links, one with a single link, and one without."""
    weights = torch.tensor([[[0.5, 0.25, 0.25], [0.1, 0.2, 0.7], [1.0, 0.0, 0.0]]], requires_grad=True)
    links = Links(*(torch.tensor(column) for column in ([0, 0, 0], [0, 0, 1], [0, 2, 1], [0.5, 0.5, 1.0])))
    loss = guided_alignment_loss(weights, links)
    expected = -(0.5 * math.log(0.5) + 0.5 * math.log(0.25) + math.log(0.2))
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert weights.grad[0, 2].tolist() == [0, 0, 0] and weights.grad[0, 1].tolist() == pytest.approx(
        [0, -5, 0]
    )
