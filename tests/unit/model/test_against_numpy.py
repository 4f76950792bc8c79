"""Attention against the formula in NumPy float64."""

import numpy as np
import pytest
import torch

from transformer_mt.model.attention import MultiHeadAttention, plain_attention
from transformer_mt.model.fast_attention import cpu_attention, fused_attention


def softmax_attention(q, k, v, mask):
    """softmax(Q Kᵀ / sqrt(d_k)) V, by loops over sentences, heads and queries."""
    out = np.zeros(q.shape[:3] + v.shape[3:])
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for t in range(q.shape[2]):
                allowed = [s for s in range(k.shape[2]) if mask[b, h, t, s]]
                scores = np.array([q[b, h, t] @ k[b, h, s] for s in allowed]) / np.sqrt(q.shape[3])
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                out[b, h, t] = sum(w * v[b, h, s] for w, s in zip(weights, allowed))
    return out


SIBLINGS = [
    (plain_attention, torch.float64, 1e-12),
    (fused_attention, torch.float32, 1e-5),
    (cpu_attention, torch.float32, 1e-5),
    (cpu_attention, torch.bfloat16, 0.05),
]


@pytest.mark.parametrize("attention, dtype, tolerance", SIBLINGS)
@pytest.mark.parametrize("masked", [False, True])
def test_each_attention_equals_the_formula(attention, dtype, tolerance, masked):
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 3, 4, 8)), rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 5, 8))
    mask = np.ones((2, 3, 4, 5), bool)
    if masked:
        mask = rng.random((2, 3, 4, 5)) < 0.6
        mask[..., 0] = True
    expected = softmax_attention(q, k, v, mask)
    found = attention(*(torch.from_numpy(x).to(dtype) for x in (q, k, v)), torch.from_numpy(mask))
    np.testing.assert_allclose(found.double().numpy(), expected, atol=tolerance)


@pytest.mark.parametrize("attention, dtype, tolerance", SIBLINGS)
def test_causal_equals_the_formula(attention, dtype, tolerance):
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, 2, 6, 4)) for _ in range(3))
    mask = np.broadcast_to(np.tril(np.ones((6, 6), bool)), (2, 2, 6, 6))
    found = attention(*(torch.from_numpy(x).to(dtype) for x in (q, k, v)), causal=True)
    np.testing.assert_allclose(found.double().numpy(), softmax_attention(q, k, v, mask), atol=tolerance)


def test_multi_head_attention_is_heads_side_by_side():
    """Concat(head_1 .. head_H) W^O, head_i = Attention(x W^Q_i, m W^K_i, m W^V_i) (paper, section 3.2.2)."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(12, 3).double()
    x, memory = torch.randn(2, 4, 12).double(), torch.randn(2, 5, 12).double()

    def project(linear, values):
        return values.numpy() @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()

    q, k, v = project(attention.query, x), project(attention.key, memory), project(attention.value, memory)
    heads = [
        softmax_attention(
            q[:, None, :, i : i + 4],
            k[:, None, :, i : i + 4],
            v[:, None, :, i : i + 4],
            np.ones((2, 1, 4, 5), bool),
        )[:, 0]
        for i in (0, 4, 8)
    ]
    expected = project(attention.output, torch.from_numpy(np.concatenate(heads, -1)))
    with torch.no_grad():
        attended = plain_attention(
            *(attention._split(torch.from_numpy(m), attention.num_heads) for m in (q, k, v)), None
        )
        np.testing.assert_allclose(attention._project(attended, attended).numpy(), expected, atol=1e-12)
        single = attention.float()
        fast = single(x.float(), *single.keys_values(memory.float()))
    np.testing.assert_allclose(fast.numpy(), expected, atol=1e-5)
