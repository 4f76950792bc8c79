"""Training on packed batches: the same loss and gradients as on padded ones."""

import pytest
import torch

from tests.helpers.updates import batch_of, packed_batch_of, pairs, tiny_model, updater
from transformer_mt.model.masks import same_sentence
from transformer_mt.update.chunked_loss import fused_chunk, plain_chunk, projected_cross_entropy
from transformer_mt.update.loss import CrossEntropy, plain_cross_entropy
from transformer_mt.update.step import Objective

KINDS = [
    *({"position": position, "norm": norm} for norm in ("pre", "post")
      for position in ("sinusoidal", "sinusoidal_fairseq", "learned", "rotary", "relative", "alibi", "none")),
    *({"attention": {"score": score}} for score in ("dot", "general", "additive", "cosine", "euclidean")),
    {"attention": {"window": 3}},
    {"position": "alibi", "attention": {"window": 2}},
    {"decoder_start": "eos"},
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


@pytest.mark.parametrize("settings", [{}, {"optimizer": "muon"}, {"micro_batch_tokens": 60}], ids=str)
def test_packed_updates_are_those_of_padded_batches(settings):
    models, rows = [tiny_model(), tiny_model()], [pairs(13, seed) for seed in range(3)]
    for model, make in zip(models, (batch_of, packed_batch_of)):
        run = updater(model, eps=1e-3, **settings)
        results = [run.update([make(part)], 0.01).result() for part in rows]
        assert [result.num_tokens for result in results] == [
            sum(len(tgt) + 1 for _, tgt in part) for part in rows
        ]
    for padded, packed in zip(models[0].parameters(), models[1].parameters()):
        # A step is 0.002 (root mean square), and Muon makes a matrix of tiny gradients as long as any other.
        torch.testing.assert_close(packed, padded, atol=1e-3, rtol=1e-3)


def test_a_sentence_sees_itself_and_padding_sees_something():
    queries, keys = torch.tensor([[1, 1, 2, 0]]), torch.tensor([[1, 2, 2]])
    assert same_sentence(queries, keys)[0, 0].tolist() == [
        [True, False, False],
        [True, False, False],
        [False, True, True],
        [True, True, True],
    ]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
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
