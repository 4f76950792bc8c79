"""Muon's steps: nearly orthogonal matrices, in either precision."""

import pytest
import torch

from transformer_mt.update.optimizer import POLYNOMIALS, orthogonal

SHAPES = [(24, 24), (24, 30), (30, 24), (24, 48), (96, 24)]


def matrix_with(singular, shape, seed=0):
    torch.manual_seed(seed)
    left, right = (torch.linalg.qr(torch.randn(size, len(singular))).Q for size in shape)
    return left @ torch.diag(torch.tensor(singular)) @ right.T


def test_the_polynomials_bring_all_from_1_percent_on_near_1():
    x = torch.linspace(0.01, 1, 100_000, dtype=torch.float64)
    for a, b, c in POLYNOMIALS:
        x = a * x + b * x**3 + c * x**5
    assert x.min() > 0.987 and x.max() < 1.013


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_singular_vectors_are_kept_and_values_brought_near_1(shape, dtype):
    given = matrix_with([1.0, 0.9, 0.5, 0.3, 0.1, 0.05], shape) * 1e-4
    found = orthogonal(given[None].to(dtype))[0].float()
    u, s, v = torch.linalg.svd(given, full_matrices=False)
    values = torch.einsum("ai,ab,ib->i", u, found, v)[:6]
    slack = 0.05 if dtype == torch.bfloat16 else 0.013
    assert (values > 1 - slack).all() and (values < 1 + slack).all()
    exact = u[:, :6] @ v[:6]
    assert torch.cosine_similarity(found.flatten(), exact.flatten(), dim=0) > (
        0.95 if dtype == torch.bfloat16 else 0.999
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_a_matrix_of_rank_one_does_not_grow(shape, dtype, size):
    """Its norm is its only value; beyond 1 the first polynomial is steep."""
    each = torch.stack([matrix_with([size], shape, seed) for seed in range(200)]).to(dtype)
    largest = torch.linalg.matrix_norm(orthogonal(each).float(), 2)
    assert largest.min() > 0.8 and largest.max() < 1.2


def test_zeros_stay_zeros():
    assert torch.equal(orthogonal(torch.zeros(2, 3, 5)), torch.zeros(2, 3, 5))


def test_each_matrix_of_a_stack_is_itself():
    stack = torch.stack([matrix_with([1.0, 0.2, 0.1], (8, 20), seed) for seed in range(3)])
    together = orthogonal(stack * torch.tensor([1.0, 1e3, 1e-3])[:, None, None])
    for one, alone in zip(together, stack):
        torch.testing.assert_close(one, orthogonal(alone[None])[0], atol=1e-5, rtol=1e-4)
