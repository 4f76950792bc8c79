"""Blocks of later papers against their plain formulas."""

import pytest
import torch

from tests.helpers.updates import batch_of, pairs, tiny_model
from transformer_mt.config import TrainConfig
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention, RMSNorm
from transformer_mt.model.fast_attention import Dropout, dropout, dropout_generator
from transformer_mt.model.transformer import LayerDrop
from transformer_mt.run.run import MovingAverage

torch.manual_seed(0)


def test_rms_norm_is_its_formula():
    norm, x = RMSNorm(5).double(), torch.randn(3, 4, 5, dtype=torch.float64)
    norm.weight.data = torch.randn(5, dtype=torch.float64)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected)
    assert norm.float()(x.bfloat16()).dtype == torch.bfloat16


def test_a_model_with_rms_norm_has_no_other():
    model = tiny_model(norm_kind="rms", embedding_norm=True)
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())
    assert sum(isinstance(module, RMSNorm) for module in model.modules()) == 5 + 2 + 2


def test_grouped_heads_are_those_of_repeated_keys_and_values():
    grouped, full = (MultiHeadAttention(12, 6, num_kv_heads=n).double() for n in (2, None))
    for name, weight in full.named_parameters():
        given = grouped.get_parameter(name)
        if name.startswith(("key", "value")):  # heads of width 2: those of a group follow one another
            given = given.unflatten(0, (2, 2)).repeat_interleave(3, dim=0).flatten(0, 1)
        weight.data = given.data
    x, memory = torch.randn(2, 3, 12, dtype=torch.float64), torch.randn(2, 5, 12, dtype=torch.float64)
    keys_values = grouped.keys_values(memory)
    assert keys_values[0].shape == (2, 2, 5, 2)
    torch.testing.assert_close(grouped(x, *keys_values), full(x, *full.keys_values(memory)))
    torch.testing.assert_close(
        grouped.weights(x, keys_values[0]), full.weights(x, full.keys_values(memory)[0])
    )


def test_the_cache_of_grouped_heads_is_smaller():
    sizes = []
    for changes in ({}, {"num_kv_heads": 1}):
        model, batch = tiny_model(**changes), batch_of(pairs(3))
        state = model.start(model.encode(batch.src, batch.src_mask), batch.src_mask)
        sizes.append(sum(layer.self_keys.numel() for layer in state.layers))
    assert sizes[0] == 2 * sizes[1]


def test_queries_and_keys_are_normalised():
    attention = MultiHeadAttention(8, 2, qk_norm=True).double()
    attention.query_norm.weight.data, attention.key_norm.weight.data = torch.rand(2, 4).double()
    x = torch.randn(1, 3, 8, dtype=torch.float64)

    def heads(linear, norm):
        split = linear(x)[0].view(3, 2, 4).transpose(0, 1)
        return split / (split.square().mean(-1, keepdim=True) + 1e-5).sqrt() * norm.weight

    scores = heads(attention.query, attention.query_norm) @ heads(
        attention.key, attention.key_norm
    ).transpose(1, 2)
    weights = attention.weights(x, attention.keys_values(x)[0])
    torch.testing.assert_close(weights[0], (scores / 2).softmax(-1))


def test_layers_that_share_weights_compute_the_same_layer_again():
    sizes = {"num_encoder_layers": 3, "num_decoder_layers": 2}
    shared, one = tiny_model(**sizes, share_layers=True), tiny_model()
    assert {name for name, _ in shared.named_parameters()} == {name for name, _ in one.named_parameters()}
    full = tiny_model(**sizes)
    for name, parameter in full.named_parameters():
        first = ".".join("0" if part.isdigit() else part for part in name.split("."))
        parameter.data = dict(shared.named_parameters())[first].data
    batch = batch_of(pairs(5))
    inputs = batch.src, batch.src_mask, batch.tgt_in
    torch.testing.assert_close(shared(*inputs), full(*inputs))
    for model in (shared, full):
        model(*inputs).logsumexp(-1).sum().backward()
    gradients = [full.get_parameter(f"encoder.layers.{i}.feed_forward.inner.weight").grad for i in range(3)]
    torch.testing.assert_close(
        shared.get_parameter("encoder.layers.0.feed_forward.inner.weight").grad, sum(gradients)
    )


@pytest.mark.parametrize("kind", ["transformer", "encoder", "decoder"])
def test_weights_scaled_by_depth_are_glorots_over_the_root_of_their_layer(kind):
    sizes = {"kind": kind, "num_encoder_layers": 3, "num_decoder_layers": 2, "norm": "post"}
    usual, scaled = tiny_model(**sizes), tiny_model(**sizes, init="depth_scaled")
    divisors = set()
    for name, weight in usual.named_parameters():
        layer = [int(part) for part in name.split(".") if part.isdigit()]
        by = (1 + layer[0]) ** 0.5 if layer and weight.dim() > 1 else 1.0
        divisors.add(by)
        torch.testing.assert_close(scaled.get_parameter(name), weight / by)
    assert len(divisors) == {"transformer": 3, "encoder": 3, "decoder": 2}[kind]


def test_layers_are_left_out_by_sentence_and_only_in_training():
    drop, before, after = LayerDrop(0.25), torch.zeros(4000, 3, 2), torch.ones(4000, 3, 2)
    left = drop(before, after)
    assert all(row.unique().numel() == 1 for row in left[:50])
    assert left.mean().item() == pytest.approx(0.75, abs=0.03)
    with dropout_generator(torch.Generator().manual_seed(1)):
        first = drop(before, after)
    with dropout_generator(torch.Generator().manual_seed(1)):
        assert torch.equal(drop(before, after), first)
    assert drop.eval()(before, after) is after
    model, batch = tiny_model(layer_drop=0.5, num_encoder_layers=3), batch_of(pairs(5))
    inputs = batch.src, batch.src_mask, batch.tgt_in
    assert not torch.equal(model(*inputs), model(*inputs))
    assert torch.equal(model.eval()(*inputs), tiny_model(num_encoder_layers=3).eval()(*inputs))


def test_a_moving_average_is_its_formula():
    model = torch.nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    average, expected = MovingAverage(model, 0.6), model.weight.detach().clone()
    for step in range(1, 12):
        model.weight.data += step
        average.update(step)
        decay = min(0.6, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach()
    assert average.weights().keys() == {"weight"}
    torch.testing.assert_close(average.weights()["weight"], expected)
    other = MovingAverage(torch.nn.Linear(2, 2), 0.6)
    other.load(average.weights())
    assert torch.equal(other.weights()["weight"], average.weights()["weight"])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_heads": 4, "num_kv_heads": 3}, "model.num_kv_heads must divide model.num_heads (4), but is 3"),
        (
            {"num_kv_heads": 2, "attention": {"score": "cosine"}},
            "model.num_kv_heads must be left out with attention.score: cosine, which has weights for each "
            "head, but is 2",
        ),
        ({"kind": "recurrent", "qk_norm": True}, "qk_norm must be false with kind: recurrent, but is true"),
        (
            {"kind": "recurrent", "num_kv_heads": 2},
            "model.num_kv_heads must be left out with kind: recurrent, but is 2",
        ),
    ],
)
def test_blocks_that_do_not_go_together_are_said(changes, message):
    with pytest.raises(ValueError) as error:
        ModelConfig.model_validate(changes)
    assert message in str(error.value)


def test_a_decay_without_its_average_is_refused():
    with pytest.raises(ValueError, match="train.ema_decay must be left out without train.average: ema, but "):
        TrainConfig(ema_decay=0.9)
    assert TrainConfig(average="ema", ema_decay=0.9).ema_decay == 0.9


# Dropout from cheap random bits is dropout.


@pytest.mark.parametrize("p, dtype", [(0.1, torch.float32), (0.9, torch.bfloat16)])
def test_it_drops_the_share_it_is_told_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1000, 999, dtype=dtype)
    y = dropout(x, p).float()
    assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.002)
    assert y.mean().item() == pytest.approx(1.0, abs=0.01)
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-3
    assert y.unique().tolist() == pytest.approx([0.0, 1 / (1 - p)], rel=tolerance)


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


def test_odd_inputs():
    x = torch.ones(6, 8).T[::2]
    assert dropout(x, 0.5).shape == x.shape
    assert dropout(torch.ones(0, 3), 0.5).shape == (0, 3)
    # It was rounded to one, and what is kept divided by zero.
    assert dropout(torch.ones(100), 0.99999).isfinite().all()
