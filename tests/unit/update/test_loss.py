"""The projection and the label-smoothed cross-entropy."""

import math
from contextlib import nullcontext

import pytest
import torch

from tests.helpers.faults import loss_chunks
from tests.helpers.updates import CPU, batch_of, packed_batch_of, pairs, tiny_model
from transformer_mt.data.batches.batch import Links
from transformer_mt.device import autocast
from transformer_mt.model.fast_attention import without_cpu_code
from transformer_mt.model.interface import NEVER
from transformer_mt.update.chunked_loss import fused_chunk, plain_chunk, projected_cross_entropy
from transformer_mt.update.loss import CrossEntropy, guided_alignment_loss, plain_cross_entropy
from transformer_mt.update.step import Objective


@pytest.mark.parametrize(
    "chunk, smoothing, dtype, has_bias",
    [
        (256, 0.0, torch.float32, False),
        (256, 0.1, torch.bfloat16, True),
        (1, 0.3, torch.float32, True),
        (2, 0.1, torch.float32, True),
        (2, 0.0, torch.float32, True),
        (2, 0.3, torch.bfloat16, False),
    ],
)
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


@pytest.mark.parametrize("code", [nullcontext, without_cpu_code])
@pytest.mark.parametrize("scale", [1, 30, 1000])
def test_loss_is_the_plain_one_for_logits_of_any_size(scale, code):
    """A GPU takes other steps, because none of its numbers is read."""
    torch.manual_seed(3)
    hidden, weight, targets = scale * torch.randn(40, 16), torch.randn(70, 16), torch.randint(70, (40,))
    with code():
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


# Training on packed batches: the same loss and gradients as on padded ones.


KINDS = [
    *({"position": position}
      for position in ("sinusoidal", "sinusoidal_fairseq", "learned", "rotary", "relative", "none")),
    {"position": "relative", "norm": "post"},
    *({"attention": {"score": score}} for score in ("general", "additive", "cosine", "euclidean")),
    {"attention": {"window": 3}},
    {"position": "alibi"},
    {"position": "alibi", "norm": "post", "attention": {"window": 2}},
    {"decoder_start": "eos"},
    {"decoder_start": "zeros", "position": "sinusoidal_marian"},
    {"autoregression": "ssru", "norm": "post", "decoder_start": "zeros"},
    {"autoregression": "ssru", "num_decoder_layers": 2, "layer_drop": 0.0},
    {"output_bias": True},
    {"embedding_norm": True, "feed_forward": "swiglu"},
    {"kind": "decoder"},
    {"norm_kind": "rms", "qk_norm": True, "num_kv_heads": 1, "num_encoder_layers": 2, "share_layers": True},
]  # fmt: skip


@pytest.mark.parametrize("settings", KINDS, ids=str)
def test_packed_sentences_have_the_loss_and_the_gradients_of_padded_ones(settings):
    model, rows = tiny_model(**settings).double(), pairs(13)
    losses_and_gradients = []
    for batch in (batch_of(rows), packed_batch_of(rows), packed_batch_of(rows, num_rows=12)):
        model.zero_grad()
        loss, nll = Objective(model, CrossEntropy(0.1))(batch)
        loss.backward()
        losses_and_gradients.append([loss, nll, *(parameter.grad for parameter in model.parameters())])
        model.zero_grad(set_to_none=True)
    # Rotations, other scores and the sum for a bias of the output are computed in float32.
    is_rough = settings.get("position") == "rotary" or "output_bias" in settings
    is_rough |= "qk_norm" in settings or "score" in settings.get("attention", {})
    tolerance = 1e-5 if is_rough else 1e-12
    for packed in losses_and_gradients[1:]:
        for value, expected in zip(packed[:2], losses_and_gradients[0][:2]):  # summed in float32
            assert value.item() == pytest.approx(expected.item(), rel=1e-6)
        for value, expected in zip(packed[2:], losses_and_gradients[0][2:]):
            torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias, smoothing", [(False, 0.1), (True, 0.1)])
def test_padding_costs_no_loss(bias, smoothing):
    torch.manual_seed(0)
    hidden, weight = torch.randn(7, 4, dtype=torch.float64), torch.randn(9, 4, dtype=torch.float64)
    bias_V = torch.cat([torch.tensor([-1e9]), torch.randn(8)]).double() if bias else None
    targets = torch.tensor([3, 0, 8, 0, 1, 5, 0])
    real = targets != 0
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight)]
    expected, expected_nll = plain_cross_entropy(hidden[real], weight, targets[real], smoothing, bias_V)
    gradients = torch.autograd.grad(expected, inputs)
    loss, nll = projected_cross_entropy(hidden, weight, targets, smoothing, bias_V, is_real=real)
    torch.testing.assert_close(loss, expected.detach(), check_dtype=False, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll, expected_nll, check_dtype=False, rtol=1e-5, atol=1e-5)
    for found, wanted in zip(torch.autograd.grad(loss, inputs), gradients):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_form_that_is_compiled_has_the_values_of_the_other():
    torch.manual_seed(0)
    logits, targets = torch.randn(6, 11), torch.tensor([[3], [0], [10], [0], [1], [5]])
    for real in (None, targets != 0):
        plain = plain_chunk(logits, targets, real, 0.1 / 11, 0.1, True)
        fused = fused_chunk(logits, targets, real, 0.1 / 11, 0.1, True)
        torch.testing.assert_close(fused, plain)
