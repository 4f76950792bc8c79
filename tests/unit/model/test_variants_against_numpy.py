"""Attention as the literature varies it, against its formulas in NumPy float64, one query and one key at a
time.
"""

import numpy as np
import pytest
import torch

from transformer_mt.model.masks import Positions, attend_to
from transformer_mt.model.variants.attention_scores import General, ScaledDot
from transformer_mt.model.variants.position_bias import Alibi, Relative, Rotary
from transformer_mt.model.variants.recurrent import (
    BahdanauDecoder,
    LuongDecoder,
    RecurrentEncoder,
    SourceAttention,
)
from transformer_mt.model.variants.variants import PredictedCentre, VariantAttention

B, T, S, D, H = 2, 5, 7, 12, 3
K = D // H


def numbers(module):
    return {name: value.detach().numpy() for name, value in module.named_parameters()}


def linear(p, name, x):
    return p[f"{name}.weight"] @ x + p.get(f"{name}.bias", 0.0)


def by_hand(attention, x, m, mask, score, value=lambda h, t, s, v: v, allowed=lambda t, s: True, weigh=None):
    """Concat of sum over s of softmax_s(score) value, then W^O; `score(h, t, s, q, k)`; `weigh(b, t, s)` is a
    factor.
    """
    p, out = numbers(attention), np.zeros((B, x.shape[1], D))
    for b, t in np.ndindex(B, x.shape[1]):
        heads = []
        for h in range(H):
            part = slice(h * K, (h + 1) * K)
            q = linear(p, "query", x[b, t])[part]
            seen = [s for s in range(m.shape[1]) if mask[b, t, s] and allowed(t, s)]
            if weigh:
                seen = [s for s in seen if weigh(b, t, s) is not None]
            scores = np.array([score(h, t, s, q, linear(p, "key", m[b, s])[part]) for s in seen])
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            if weigh:
                weights = weights * [weigh(b, t, s) for s in seen]
            heads.append(
                sum(w * value(h, t, s, linear(p, "value", m[b, s])[part]) for w, s in zip(weights, seen))
            )
        out[b, t] = linear(p, "output", np.concatenate(heads))
    return out


def scaled(h, t, s, q, k):
    return q @ k / np.sqrt(K)


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    x, memory = torch.randn(B, T, D, dtype=torch.float64), torch.randn(B, S, D, dtype=torch.float64)
    src_mask = torch.ones(B, S, dtype=torch.bool)
    src_mask[1, 5:] = False
    return x, memory, src_mask


def to_itself(attention, x, causal):
    """Module and mask for loops: attention of x to itself."""
    attention = attention.double()
    mask = np.tril(np.ones((T, T), bool)) if causal else np.ones((T, T), bool)
    return attention(x, *attention.keys_values(x), causal=causal).detach().numpy(), np.broadcast_to(
        mask, (B, T, T)
    )


@pytest.mark.parametrize("causal, way", [(False, "rotate_by_products"), (True, "rotate_by_formula")])
def test_rotary_turns_pairs_by_their_place(inputs, causal, way):
    kind = type("InOneWay", (Rotary,), {"rotate": getattr(Rotary, way)})
    x = inputs[0]
    attention = VariantAttention(D, H, score=ScaledDot(), position_bias=kind())

    def rotate(place, vector):
        """R of the place times the vector (Su et al. 2021, equation 15): complex numbers times e^(i place
        theta).
        """
        theta = 10000.0 ** (-np.arange(0, K, 2) / K)
        pairs = (vector[0::2] + 1j * vector[1::2]) * np.exp(1j * place * theta)
        return np.stack([pairs.real, pairs.imag], axis=1).ravel()

    found, mask = to_itself(attention, x, causal)
    formula = lambda h, t, s, q, k: rotate(t, q) @ rotate(s, k) / K**0.5  # noqa: E731
    expected = by_hand(attention, x.numpy(), x.numpy(), mask, formula)
    np.testing.assert_allclose(found, expected, atol=1e-6)  # angles are float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_ways_to_rotate_agree_far_out_too(dtype):
    x = torch.randn(2, 3, 4, 8, dtype=dtype)
    there = Positions(torch.tensor([0, 7, 700, 5000]), torch.arange(1), end=5001)
    one, other = Rotary().rotate_by_products(x, there), Rotary().rotate_by_formula(x, there)
    assert one.dtype == other.dtype == dtype
    torch.testing.assert_close(one, other, atol=1e-6 if dtype == torch.float32 else 0.05, rtol=1e-2)
    torch.testing.assert_close(one.float().norm(), x.float().norm(), rtol=1e-2, atol=0)  # it only turns


def test_what_a_search_needed_first_can_be_trained_with():
    x = torch.randn(1, 1, 3, 8, requires_grad=True)
    there = Positions(torch.tensor([0, 1, 9000]), torch.arange(1), end=9001)
    rotary = Rotary()
    with torch.inference_mode():
        rotary.rotate(x, there)
    rotary.rotate(x, there).sum().backward()
    assert x.grad is not None


def test_what_is_compiled_has_no_complex_numbers():
    x, there, dtypes = torch.randn(1, 1, 3, 8), Positions.of(3, 3, torch.device("cpu")), set()

    def note_dtypes(graph, inputs):
        for node in graph.graph.nodes:
            value = node.meta.get("example_value")
            dtypes.update({value.dtype} if isinstance(value, torch.Tensor) else ())
        return graph.forward

    rotary = Rotary()
    compiled = torch.compile(lambda x: rotary.rotate(x, there), backend=note_dtypes, fullgraph=True)
    torch.testing.assert_close(compiled(x), rotary.rotate(x, there))
    assert torch.float32 in dtypes
    assert not any(dtype.is_complex for dtype in dtypes)


def relative():
    return Relative(H, K, Relative.Settings(distance=2))


def by_relative(p):
    """Vectors of the distance are added to keys and values."""

    def distance(t, s):
        return int(np.clip(s - t, -2, 2)) + 2

    return {
        "score": lambda h, t, s, q, k: q @ (k + p["relation.keys"][distance(t, s)]) / np.sqrt(K),
        "value": lambda h, t, s, v: v + p["relation.values"][distance(t, s)],
    }


def by_alibi(p):
    """The distance is taken off."""
    return {"score": lambda h, t, s, q, k: scaled(h, t, s, q, k) - 2.0 ** (-8 * (h + 1) / H) * abs(t - s)}


def by_window(p):
    """What is farther is hidden."""
    return {"score": scaled, "allowed": lambda t, s: abs(t - s) <= 1}


VARIANTS = {
    by_alibi: lambda: VariantAttention(D, H, score=ScaledDot(), position_bias=Alibi(H)),
    by_relative: lambda: VariantAttention(D, H, score=ScaledDot(), position_bias=relative()),
    by_window: lambda: VariantAttention(D, H, window=1),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("formula", VARIANTS)
def test_attention_to_places_is_its_formula(inputs, causal, formula):
    x, attention = inputs[0], VARIANTS[formula]()
    found, mask = to_itself(attention, x, causal)
    expected = by_hand(attention, x.numpy(), x.numpy(), mask, **formula(numbers(attention)))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_dropout_takes_keys_from_the_vectors_of_relative_positions_too(inputs):
    """Shaw et al., equation 3, has one weight for a key's value and for its distance's vector."""
    torch.manual_seed(1)
    x = inputs[0]
    attention = VariantAttention(D, H, dropout=0.9999, score=ScaledDot(), position_bias=relative())
    attention = attention.double().train()
    found = attention(x, *attention.keys_values(x))
    assert torch.equal(found, attention.output.bias.expand_as(found))


def test_local_m_looks_around_the_same_place(inputs):
    x, memory, src_mask = inputs
    attention = VariantAttention(D, H, window=2).double()
    found = attention(x, *attention.keys_values(memory), attend_to(src_mask))
    mask = np.broadcast_to(src_mask.numpy()[:, None], (B, T, S))
    near = {"allowed": lambda t, s: abs(t - s) <= 2}
    expected = by_hand(attention, x.numpy(), memory.numpy(), mask, scaled, **near)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("position_bias", [None, Alibi(H)], ids=["plain", "alibi"])
def test_a_target_past_its_window_sees_nothing_of_the_padding(dtype, position_bias):
    """As many targets as take another kernel than the formula: with the last one's window beyond
    the source.
    """
    torch.manual_seed(0)
    attention = VariantAttention(D, H, position_bias=position_bias, window=2).to(dtype)
    x, memory = torch.randn(2, 12, D).to(dtype), torch.randn(2, 6, D).to(dtype)
    src_mask = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
    found = attention(x, *attention.keys_values(memory), attend_to(src_mask))
    alone = attention(x[1:], *attention.keys_values(memory[1:, :3]), attend_to(src_mask[1:, :3]))
    torch.testing.assert_close(found[1:], alone, atol=2e-2 if dtype == torch.bfloat16 else 1e-5, rtol=0.0)
    nothing = attention.output.bias.expand(7, D)
    assert torch.equal(found[1, 5:], nothing) and not torch.equal(found[0, 5:], nothing)


def test_local_p_looks_around_a_predicted_place(inputs):
    """p = S sigmoid(vᵀ tanh(W h)), weights within the window times exp(-(s - p)² / (2 (w/2)²)) (Luong et al.
    2015, 9, 10).
    """
    x, memory, src_mask = inputs
    attention = VariantAttention(D, H, window=2, centre=PredictedCentre(D)).double()
    found = attention(x, *attention.keys_values(memory), attend_to(src_mask))
    p, lengths = numbers(attention), src_mask.sum(dim=1).numpy()

    def gauss(b, t, s):
        inner = np.tanh(p["centre.inner.weight"] @ x[b, t].numpy())
        centre = lengths[b] / (1 + np.exp(-(p["centre.outer.weight"] @ inner)[0]))
        return np.exp(-((s - centre) ** 2) / 2) if abs(s - centre) <= 2 else None

    mask = np.broadcast_to(src_mask.numpy()[:, None], (B, T, S))
    expected = by_hand(attention, x.numpy(), memory.numpy(), mask, scaled, weigh=gauss)
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-5)  # centres are float32


def test_hard_attention_takes_the_best_key_alone(inputs):
    x, memory, src_mask = inputs
    attention = VariantAttention(D, H, hard=True).double().eval()
    found = attention(x, *attention.keys_values(memory), attend_to(src_mask))
    mask = np.broadcast_to(src_mask.numpy()[:, None], (B, T, S))
    expected = by_hand(attention, x.numpy(), memory.numpy(), mask, lambda h, t, s, q, k: 1e9 * (q @ k))
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-10)


def test_hard_attention_draws_one_key_in_training_and_learns_as_if_it_were_soft(inputs):
    x, memory, src_mask = inputs
    attention = VariantAttention(D, H, hard=True).double()
    keys, values = attention.keys_values(memory)
    mask = attend_to(src_mask)
    torch.manual_seed(1)
    drawn = torch.stack([attention.weights(x, keys, mask).detach() for _ in range(2000)])
    torch.testing.assert_close(drawn.amax(dim=-1), torch.ones_like(drawn[..., 0]))  # all on one key
    torch.testing.assert_close(drawn.sum(dim=-1), torch.ones_like(drawn[..., 0]))
    attention.hard = False
    soft = attention.weights(x, keys, mask).detach()
    torch.testing.assert_close(drawn.mean(dim=0), soft, atol=0.06, rtol=0.0)  # drawn by the soft weights

    def gradient(weights):
        """Of the values' sum, where a key's weight is `weights`."""
        return torch.autograd.grad((weights.double() @ values.detach()).sum(), attention.query.weight)[0]

    attention.hard = True
    torch.manual_seed(1)
    learned = gradient(attention.weights(x, keys, mask))
    attention.hard = False
    torch.manual_seed(1)
    logits = attention.weights(x, keys, mask).log()
    softly = gradient(torch.nn.functional.gumbel_softmax(logits, dim=-1))
    torch.testing.assert_close(learned, softly, atol=1e-5, rtol=1e-4)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(p, prefix, x, h, c, suffix=""):
    """i, f, g, o as torch orders them; Hochreiter and Schmidhuber's cell with a forget gate."""
    gates = p[f"{prefix}weight_ih{suffix}"] @ x + p[f"{prefix}bias_ih{suffix}"]
    gates = gates + p[f"{prefix}weight_hh{suffix}"] @ h + p[f"{prefix}bias_hh{suffix}"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def test_the_recurrent_encoder_reads_from_both_ends(inputs):
    _, x, src_mask = inputs
    encoder = RecurrentEncoder("lstm", D, 1, 0.0).double()
    found, p = encoder(x, src_mask).detach().numpy(), numbers(encoder)
    for b, length in enumerate(src_mask.sum(dim=1).tolist()):
        expected = np.zeros((length, D))
        for order, half, suffix in ((1, slice(0, D // 2), "_l0"), (-1, slice(D // 2, D), "_l0_reverse")):
            h = c = np.zeros(D // 2)
            for s in range(length)[::order]:
                h, c = lstm(p, "rnn.", x[b, s].numpy(), h, c, suffix)
                expected[s, half] = h
        np.testing.assert_allclose(found[b, :length], expected, atol=1e-12)
        assert not found[b, length:].any()


@pytest.mark.parametrize("kind", [BahdanauDecoder, LuongDecoder])
def test_the_recurrent_decoders_are_their_papers(inputs, kind):
    y, memory, src_mask = inputs
    attention = SourceAttention(D, 0.0, General(1, D), 0, None, False)
    decoder = kind("lstm", D, 1, 0.0, attention).double().eval()
    found, p, m = decoder(y, memory, src_mask).detach().numpy(), numbers(decoder), memory.numpy()
    for b, length in enumerate(src_mask.sum(dim=1).tolist()):

        def context(state, b=b, length=length):
            scores = np.array([state @ p["attention.score.weight_HKK"][0] @ m[b, s] for s in range(length)])
            weights = np.exp(scores - scores.max())
            return (weights / weights.sum()) @ m[b, :length]

        h = np.tanh(
            linear(p, "first_states", np.concatenate([m[b, length - 1, : D // 2], m[b, 0, D // 2 :]]))
        )
        c, fed = np.zeros(D), np.zeros(D)
        for t in range(T):
            x = y[b, t].numpy()
            if kind is BahdanauDecoder:
                seen = context(h)
                h, c = lstm(p, "cells.0.", np.concatenate([x, seen]), h, c)
                expected = linear(p, "readout", np.concatenate([h, x, seen])).reshape(-1, 2).max(axis=1)
            else:
                h, c = lstm(p, "cells.0.", np.concatenate([x, fed]), h, c)
                expected = fed = np.tanh(linear(p, "combine", np.concatenate([context(h), h])))
            np.testing.assert_allclose(found[b, t], expected, atol=1e-6)
