"""Dropout from cheap random bits is dropout."""

import pytest
import torch

from transformer_mt.model.fast_attention import Dropout, dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_drops_the_share_it_is_told_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1000, 999, dtype=dtype)
    y = dropout(x, p).float()
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.002)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    assert y.unique().tolist() == pytest.approx(
        [0.0, 1 / (1 - p)], rel=1e-2 if dtype == torch.bfloat16 else 1e-3
    )


def test_the_elements_of_one_random_number_are_dropped_apart():
    torch.manual_seed(0)
    dropped = (dropout(torch.ones(250_000, 4), 0.3) == 0).double()
    assert dropped.mean(0).tolist() == pytest.approx([0.3] * 4, abs=0.005)
    together = torch.corrcoef(dropped.T) - torch.eye(4)
    assert together.abs().max() < 0.01
    after_each_other = torch.corrcoef(torch.stack([dropped.flatten()[:-4], dropped.flatten()[4:]]))
    assert abs(after_each_other[0, 1]) < 0.01


def test_its_gradient_is_its_own_mask():
    x = torch.randn(37, 5, requires_grad=True)
    y = dropout(x, 0.4)
    upstream = torch.randn_like(y)
    y.backward(upstream)
    torch.testing.assert_close(x.grad, upstream * torch.where(y == 0, 0.0, y / x).detach())


def test_the_seed_decides_and_evaluation_changes_nothing():
    x, layer = torch.randn(50, 7), Dropout(0.5)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(layer(x))
    assert torch.equal(outputs[0], outputs[1]) and not torch.equal(outputs[0], outputs[2])
    assert layer.eval()(x) is x
    assert dropout(x, 0.0) is x


def test_inputs_that_are_not_contiguous_or_empty():
    x = torch.ones(6, 8).T[::2]
    assert dropout(x, 0.5).shape == x.shape
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)


def test_a_probability_of_almost_one_keeps_an_element_now_and_then():
    """It was rounded to one, and what is kept divided by zero."""
    assert dropout(torch.ones(100), 0.99999).isfinite().all()
