import pytest
import torch

from transformer_mt.training import r_drop
from transformer_mt.training.loss import plain_cross_entropy
from transformer_mt.training.r_drop import consistent_cross_entropy, plain_consistent_cross_entropy


def tensors():
    torch.manual_seed(0)
    first, second, weight = torch.randn(23, 8), torch.randn(23, 8), torch.randn(40, 8)
    return [t.requires_grad_() for t in (first, second, weight)], torch.randint(0, 40, (23,))


@pytest.mark.parametrize("smoothing, alpha", [(0.1, 5.0), (0.0, 1.0), (0.1, 0.0)])
def test_chunks_give_what_the_plain_formula_gives(monkeypatch, smoothing, alpha):
    monkeypatch.setitem(r_drop._CHUNK, "cpu", 40 * 5)  # five tokens a chunk, the last one shorter
    results = []
    for function in (consistent_cross_entropy, plain_consistent_cross_entropy):
        inputs, targets = tensors()
        loss, nll = function(*inputs, targets, smoothing, alpha)
        (3 * loss).backward()
        results.append([loss, nll, *(t.grad for t in inputs)])
    for fast, plain in zip(*results):
        torch.testing.assert_close(fast, plain, atol=1e-4, rtol=1e-4)


def test_two_equal_outputs_are_as_one():
    (first, _, weight), targets = tensors()
    loss, nll = consistent_cross_entropy(first, first, weight, targets, 0.1, 5.0)
    torch.testing.assert_close((loss, nll), plain_cross_entropy(first, weight, targets, 0.1))
