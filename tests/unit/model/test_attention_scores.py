"""Each score class against a NumPy float64 rendering of its formula, one query and one key at a time."""

import numpy as np
import pytest
import torch

from transformer_mt.model.variants.attention_scores import (
    Additive,
    Concat,
    Cosine,
    Dot,
    Euclidean,
    General,
    Location,
    ScaledDot,
)

B, H, T, S, K = 2, 3, 4, 5, 6

KINDS = {
    "scaled_dot": (lambda: ScaledDot(), lambda q, k, p: q @ k / np.sqrt(K)),
    "dot": (lambda: Dot(), lambda q, k, p: q @ k),
    "general": (lambda: General(H, K), lambda q, k, p: q @ p["weight_HKK"] @ k),
    "additive": (
        lambda: Additive(H, K),
        lambda q, k, p: p["v_HK"] @ np.tanh(q @ p["query_HKK"] + k @ p["key_HKK"]),
    ),
    "cosine": (lambda: Cosine(H), lambda q, k, p: p["scale_H"] * (q @ k) / np.sqrt(q @ q) / np.sqrt(k @ k)),
    "concat": (
        lambda: Concat(H, K),
        lambda q, k, p: p["v_HK"] @ np.tanh(np.concatenate([q, k]) @ p["weight_HKK"]),
    ),
    "euclidean": (lambda: Euclidean(), lambda q, k, p: -((q - k) @ (q - k)) / 2 / np.sqrt(K)),
}


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    torch.manual_seed(0)
    make, formula = KINDS[request.param]
    module = make().double()
    q, k = torch.randn(B, H, T, K, dtype=torch.float64), torch.randn(B, H, S, K, dtype=torch.float64)
    return module, formula, q, k


class _Whole(torch.nn.Module):
    """A score with both its methods in one."""

    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, q, k):
        return self.score(q, self.score.keys(k))


def test_scores_are_the_formula(kind):
    module, formula, q, k = kind
    parameters = {name: value.detach().numpy() for name, value in module.named_parameters()}
    expected = np.empty((B, H, T, S))
    for b, h, t, s in np.ndindex(B, H, T, S):
        of_head = {name: value[h] for name, value in parameters.items()}
        expected[b, h, t, s] = formula(q[b, h, t].numpy(), k[b, h, s].numpy(), of_head)
    np.testing.assert_allclose(module(q, module.keys(k)).detach().numpy(), expected, atol=1e-12)


def test_gradients_are_those_of_the_formula(kind):
    module, _, q, k = kind
    inputs = [q[:1, :, :2].requires_grad_(), k[:1, :, :2].requires_grad_()]
    parameters = list(module.parameters())

    def score(q, k, *values):
        whole = _Whole(module)
        return torch.func.functional_call(
            whole, dict(zip([n for n, _ in whole.named_parameters()], values)), (q, k)
        )

    assert torch.autograd.gradcheck(score, (*inputs, *parameters))


def test_location_asks_the_query_alone():
    torch.manual_seed(0)
    module = Location(H, K, max_length=8).double()
    q, k = torch.randn(B, H, T, K, dtype=torch.float64), torch.randn(B, H, S, K, dtype=torch.float64)
    expected = np.einsum("bhtk,hks->bhts", q.numpy(), module.weight_HKL.detach().numpy()[:, :, :S])
    np.testing.assert_allclose(module(q, module.keys(k)).detach().numpy(), expected, atol=1e-12)

    def score(q, weight):
        return torch.func.functional_call(module, {"weight_HKL": weight}, (q, k))

    assert torch.autograd.gradcheck(score, (q.requires_grad_(), module.weight_HKL))
    with pytest.raises(
        ValueError, match="the source must have at most 8 tokens, but has 9; the model was built with"
    ):
        module(q, torch.randn(B, H, 9, K, dtype=torch.float64))
