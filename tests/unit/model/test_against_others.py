"""The blocks and the model against NumPy's formulas and torch's own layers."""

import numpy as np
import pytest
import torch
from torch import nn

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.attention import plain_attention
from transformer_mt.model.build_model import build_model
from transformer_mt.model.fast_attention import cpu_attention, fused_attention
from transformer_mt.model.masks import attend_to


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
def test_each_attention_equals_the_formula(attention, dtype, tolerance):
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 3, 4, 8)), rng.normal(size=(2, 3, 5, 8)), rng.normal(size=(2, 3, 5, 8))
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


# Our layers against torch.nn's with the same weights: values and gradients.


D, H, FF = 16, 4, 32


def ours(norm, feed_forward="relu"):
    sizes = {"d_model": D, "d_ff": FF, "num_heads": H, "num_encoder_layers": 1, "num_decoder_layers": 1}
    torch.manual_seed(0)
    config = ModelConfig(**sizes, dropout=0.0, norm=norm, feed_forward=feed_forward)
    model = build_model(config, 20, 20, True, 20)
    for parameter in model.parameters():  # biases and norms too: zeros would hide a mistake
        nn.init.normal_(parameter, std=0.3)
    return model


def copy_attention(theirs, attention):
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([attention.query.weight, attention.key.weight, attention.value.weight])
        )
        theirs.in_proj_bias.copy_(torch.cat([attention.query.bias, attention.key.bias, attention.value.bias]))
        theirs.out_proj.load_state_dict(attention.output.state_dict())


def compare(x, our_output, their_output, pairs):
    """Same values, and the same gradients with respect to the input and each pair of weights."""
    torch.testing.assert_close(our_output, their_output, atol=1e-5, rtol=1e-5)
    direction = torch.randn_like(our_output)
    (our_x,) = torch.autograd.grad((our_output * direction).sum(), x, retain_graph=True)
    (their_x,) = torch.autograd.grad((their_output * direction).sum(), x, retain_graph=True)
    torch.testing.assert_close(our_x, their_x, atol=1e-4, rtol=1e-4)
    for our_weight, their_weight in pairs:
        (our_grad,) = torch.autograd.grad((our_output * direction).sum(), our_weight, retain_graph=True)
        (their_grad,) = torch.autograd.grad((their_output * direction).sum(), their_weight, retain_graph=True)
        torch.testing.assert_close(our_grad, their_grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("norm, activation", [("pre", "gelu"), ("post", "relu")])
def test_encoder_layer(norm, activation):
    layer = ours(norm, activation).encoder.layers[0]
    theirs = nn.TransformerEncoderLayer(
        D, H, FF, dropout=0.0, activation=activation, batch_first=True, norm_first=norm == "pre"
    )
    copy_attention(theirs.self_attn, layer.self_attention)
    theirs.linear1.load_state_dict(layer.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(layer.feed_forward.outer.state_dict())
    theirs.norm1.load_state_dict(layer.self_residual.norm.state_dict())
    theirs.norm2.load_state_dict(layer.ffn_residual.norm.state_dict())
    x = torch.randn(2, 5, D, requires_grad=True)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    our_output = layer(x, attend_to(real))[real]
    their_output = theirs(x, src_key_padding_mask=~real)[real]
    weights = [
        (layer.feed_forward.inner.weight, theirs.linear1.weight),
        (layer.self_attention.output.weight, theirs.self_attn.out_proj.weight),
        (layer.self_residual.norm.weight, theirs.norm1.weight),
    ]
    compare(x, our_output, their_output, weights)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_decoder_layer(norm):
    layer = ours(norm).decoder.layers[0]
    theirs = nn.TransformerDecoderLayer(D, H, FF, dropout=0.0, batch_first=True, norm_first=norm == "pre")
    copy_attention(theirs.self_attn, layer.self_attention)
    copy_attention(theirs.multihead_attn, layer.cross_attention)
    theirs.linear1.load_state_dict(layer.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(layer.feed_forward.outer.state_dict())
    for norm_module, residual in (
        (theirs.norm1, layer.self_residual),
        (theirs.norm2, layer.cross_residual),
        (theirs.norm3, layer.ffn_residual),
    ):
        norm_module.load_state_dict(residual.norm.state_dict())
    x, memory = torch.randn(2, 4, D, requires_grad=True), torch.randn(2, 5, D)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    our_output = layer(x, memory, attend_to(real))
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    their_output = theirs(x, memory, tgt_mask=causal, memory_key_padding_mask=~real)
    weights = [
        (layer.cross_attention.output.weight, theirs.multihead_attn.out_proj.weight),
        (layer.feed_forward.outer.weight, theirs.linear2.weight),
        (layer.cross_residual.norm.bias, theirs.norm2.bias),
    ]
    compare(x, our_output, their_output, weights)
