"""Masks, positions, states and the shapes of the whole model."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from tests.unit.translation.test_translator import SEARCHES
from transformer_mt import Translator
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention, attention_weights, plain_attention
from transformer_mt.model.build_model import build_model
from transformer_mt.model.fast_attention import cpu_attention, fast_attention, fused_attention
from transformer_mt.model.masks import Positions, attend_to
from transformer_mt.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from transformer_mt.model.transformer import DecoderLayer, EncoderLayer
from transformer_mt.model.variants.position_bias import Rotary

TINY = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=3, dropout=0.0)


def tiny(**changes):
    torch.manual_seed(0)
    return build_model(TINY.model_copy(update=changes), 40, 50, False, max_length=30).eval()


def test_masks_say_true_where_one_may_attend():
    assert attend_to(torch.ones(4, 7, dtype=torch.bool)).shape == (4, 1, 1, 7)


def test_sinusoids_are_the_papers():
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same), one number at a time."""
    table = sinusoids(60, 8)
    for pos in range(60):
        for i in range(4):
            angle = pos / 10000 ** (2 * i / 8)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_have_no_end_and_learned_positions_do():
    x = torch.zeros(1, 3, 8)
    positions = SinusoidalPositions(8)
    assert torch.allclose(positions(x, start=5000)[0], sinusoids(5003, 8)[5000:], atol=1e-6)
    low = SinusoidalPositions(8).bfloat16()
    assert low(x.bfloat16(), start=600).dtype == torch.bfloat16  # past the table's first length too
    learned = LearnedPositions(8, max_length=5)
    assert torch.equal(learned(x, start=2)[0], learned.embedding.weight[2:5])
    with pytest.raises(ValueError, match="a sequence must have at most 5 positions, but has 6"):
        learned(x, start=3)


def test_a_query_that_may_attend_to_nothing_gets_zeros():
    q, k, v = torch.randn(3, 1, 2, 4, 8).unbind()
    mask = torch.tensor([[True, True, False, False], [False] * 4, [True] * 4, [False, True, True, True]])
    plain, weights = plain_attention(q, k, v, mask), attention_weights(q, k, mask)
    fused = fast_attention(q, k, v, mask)
    assert torch.equal(plain[:, :, 1], torch.zeros(1, 2, 8))
    assert torch.equal(weights[:, :, 1], torch.zeros(1, 2, 4))
    assert torch.isfinite(fused).all()
    seeing = [0, 2, 3]  # of the other query, the fast siblings may return anything that is finite
    assert torch.allclose(plain[:, :, seeing], fused[:, :, seeing], atol=1e-6)


def test_weights_are_those_the_values_were_mixed_with():
    torch.manual_seed(1)
    attention = MultiHeadAttention(16, 2)
    x, memory = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    keys, values = attention.keys_values(memory)
    mask = attend_to(torch.tensor([[True] * 5, [True] * 3 + [False] * 2]))
    weights = attention_weights(attention._split(attention.query(x), attention.num_heads), keys, mask)
    assert torch.allclose(weights.sum(-1), torch.ones(2, 2, 3))
    assert (weights[1, :, :, 3:] == 0).all()
    assert torch.allclose(
        attention._project(weights @ values, x), attention(x, keys, values, mask), atol=1e-6
    )


def test_bfloat16_attention_is_close_to_float32():
    q, k, v = torch.randn(3, 2, 2, 6, 8).unbind()
    low = fast_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), causal=True)
    assert torch.allclose(low.float(), fast_attention(q, k, v, causal=True), atol=0.05)


def test_dropout_of_weights_is_the_same_in_each_attention():
    """With the mean over many samples: each drops weights, scaled so that the expectation stays."""
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind()
    expected = plain_attention(q, k, v)
    for attention in (plain_attention, fused_attention, cpu_attention):
        torch.manual_seed(0)
        samples = attention(*(x.expand(4000, -1, -1, -1) for x in (q, k, v)), dropout=0.3)
        assert not torch.allclose(samples[0], expected[0], atol=1e-3)
        assert torch.allclose(samples.mean(0), expected[0], atol=0.1)


def test_heads_must_share_out_the_width():
    with pytest.raises(ValueError, match=r"`num_heads` must divide `d_model` \(16\), but is 3"):
        MultiHeadAttention(16, 3)


def test_learned_positions_begin_as_large_as_sinusoids():
    config = ModelConfig.model_validate({"d_model": 64, "num_heads": 4, "position": "learned"})
    model = build_model(config, 30, 30, True, max_length=100)
    rms = model.src_embedding.positions.embedding.weight.detach().square().mean().sqrt()
    assert rms == pytest.approx(0.5**0.5, abs=0.03)


@pytest.mark.parametrize(
    "changes",
    [{}, {"norm": "post"}, {"feed_forward": "swiglu"}, {"feed_forward": "gelu"}, {"position": "learned"}],
)
def test_logits_have_a_number_for_each_target_piece(changes):
    model = tiny(**changes)
    src = torch.randint(4, 40, (3, 6))
    logits = model(src, torch.ones_like(src, dtype=torch.bool), torch.randint(4, 50, (3, 5)))
    assert logits.shape == (3, 5, 50)
    assert len(model.encoder.layers) == 2 and len(model.decoder.layers) == 3


def test_activations_differ():
    src, tgt = torch.randint(4, 40, (2, 5)), torch.randint(4, 50, (2, 4))
    logits = [
        tiny(feed_forward=a)(src, torch.ones_like(src, dtype=torch.bool), tgt)
        for a in ("relu", "gelu", "swiglu")
    ]
    assert not torch.allclose(logits[0], logits[1]) and not torch.allclose(logits[1], logits[2])


def test_padding_changes_nothing():
    model = tiny()
    src, tgt = torch.randint(4, 40, (1, 6)), torch.randint(4, 50, (1, 5))
    alone = model(src, src != 0, tgt)
    padded_src = torch.cat([src, torch.zeros(1, 4, dtype=torch.long)], 1)
    padded_tgt = torch.cat([tgt, torch.zeros(1, 3, dtype=torch.long)], 1)
    assert torch.allclose(model(padded_src, padded_src != 0, padded_tgt)[:, :5], alone, atol=1e-5)


def test_a_position_sees_nothing_after_it():
    model = tiny()
    src, tgt = torch.randint(4, 40, (1, 6)), torch.randint(4, 50, (1, 5))
    changed = tgt.clone()
    changed[0, 3] = (changed[0, 3] + 1) % 40 + 4
    before, after = model(src, src != 0, tgt), model(src, src != 0, changed)
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_tying_shares_all_three_or_the_decoders_two_or_nothing():
    def tables(shared, tie):
        model = build_model(TINY.model_copy(update={"tie_embeddings": tie}), 40, 40, shared, 30)
        return [model.src_embedding.tokens.weight, model.tgt_embedding.tokens.weight, model.output.weight]

    src, tgt, output = tables(shared=True, tie=True)
    assert src is tgt is output
    src, tgt, output = tables(shared=False, tie=True)
    assert src is not tgt and tgt is output
    src, tgt, output = tables(shared=True, tie=False)
    assert src is not tgt and tgt is not output and src is not output


@pytest.mark.parametrize(
    "key, module", [("dropout", "self_residual.dropout"), ("ffn_dropout", "feed_forward.dropout")]
)
def test_dropouts_reach_their_place(key, module):
    model = build_model(TINY.model_copy(update={key: 0.25}), 40, 50, False, 30)
    assert model.encoder.layers[0].get_submodule(module).p == 0.25
    assert model.decoder.layers[0].get_submodule(module).p == 0.25
    assert model.src_embedding.dropout.p == (0.25 if key == "dropout" else 0.0)


def test_attention_dropout_works_in_training_only():
    model = build_model(TINY.model_copy(update={"attention_dropout": 0.5}), 40, 50, False, 30)
    src, tgt = torch.randint(4, 40, (2, 6)), torch.randint(4, 50, (2, 5))
    model.train()
    assert not torch.equal(model(src, src != 0, tgt), model(src, src != 0, tgt))
    model.eval()
    assert torch.equal(model(src, src != 0, tgt), model(src, src != 0, tgt))


def test_initial_embeddings_have_variance_one_after_scaling():
    model = build_model(TINY.model_copy(update={"d_model": 256}), 2000, 2000, True, 30).eval()
    scaled = model.src_embedding.tokens.weight * math.sqrt(256)
    assert scaled.std().item() == pytest.approx(1.0, abs=0.02)


def test_the_base_model_has_the_papers_size():
    """Table 3: 65 million parameters, with 37,000 joint pieces."""
    config = ModelConfig(norm="post")
    count = sum(
        parameter.numel() for parameter in build_model(config, 37_000, 37_000, True, 256).parameters()
    )
    assert np.round(count / 1e6) in (63, 64, 65)


# Nothing that runs on the device of a model computes in float64: Apple's GPUs (MPS) have none.


class NoFloat64(TorchDispatchMode):
    """Raises when an operation gives a tensor of float64."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for each in tree_flatten(result)[0]:
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64:
                raise AssertionError(f"{function} gives float64")
        return result


def test_the_mode_sees_float64():
    with NoFloat64(), pytest.raises(AssertionError, match="gives float64"):
        torch.ones(2).double()


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_searches_do_not(tiny_run, search):
    translator = Translator.load(tiny_run, device="cpu", decode=search)
    with NoFloat64():
        translator.translate(["The dog sleeps.", "The old teacher sees a small bird."], align=True)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "relative", "alibi"])
def test_updates_do_not(optimizer, position):
    run = updater(tiny_model(position=position), optimizer=optimizer)
    with NoFloat64():
        run.update([batch_of(pairs(5))], 0.01)


def test_rotary_positions_on_a_mac_do_not():
    x_BHTK = torch.randn(1, 2, 5, 8)
    with NoFloat64():
        turned = Rotary(2, 8).rotate_by_formula(x_BHTK, Positions.of(5, 5, x_BHTK.device))
    assert turned.shape == x_BHTK.shape


# The Transformer's halves alone: the same layers, and nothing of the other half.


SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 2}
POSITIONS = ("sinusoidal", "learned", "relative", "rotary", "alibi", "none")
SHAPES = [{"norm": norm, "position": p} for norm, p in itertools.product(("pre", "post"), POSITIONS)]
SHAPES += [{"feed_forward": "swiglu"}, {"embedding_norm": True}, {"attention": {"window": 2}}]


def built(kind, max_length=12, **changes):
    torch.manual_seed(0)
    config = ModelConfig.model_validate({**SIZES, "kind": kind, "position": "rotary", **changes})
    model = build_model(config, 30, 30, True, max_length).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so that biases and distances have something to say
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


@pytest.fixture
def text():
    torch.manual_seed(1)
    return torch.randint(4, 30, (3, 10))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@torch.inference_mode()
def test_cached_steps_of_a_decoder_alone_equal_the_full_pass(shape, text):
    model = built("decoder", **shape)
    source = torch.full((3, 1), 3)
    full = model(source, source != 0, text)
    state = model.start(model.encode(source, source != 0), source != 0)
    for t in range(text.size(1)):
        logits, state = model.step(text[:, t], state)
        torch.testing.assert_close(logits, full[:, t], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind, sees_later", [("encoder", True), ("decoder", False)])
@torch.inference_mode()
def test_an_encoder_sees_the_whole_text_and_a_decoder_what_came_before(kind, sees_later, text):
    model = built(kind)
    changed = text.clone()
    changed[:, 6] = (changed[:, 6] - 3) % 26 + 4
    mask = torch.ones_like(text, dtype=torch.bool)
    before, after = (model(one, mask, one) for one in (text, changed))
    assert torch.equal(before[:, :6], after[:, :6]) is not sees_later
    assert not torch.equal(before[:, 7:], after[:, 7:])


@torch.inference_mode()
def test_an_encoder_alone_is_the_encoder_of_the_whole(text):
    whole, half = built("transformer"), built("encoder")
    own = dict(half.named_parameters())
    for name, parameter in whole.named_parameters():
        if name in own:
            own[name].copy_(parameter)
    mask = torch.arange(10) < torch.tensor([[10], [7], [4]])
    memory = half.encoder(half.src_embedding(text), mask[:, None, None])
    torch.testing.assert_close(memory, whole.encode(text, mask))
    shared = {name for name, _ in whole.named_parameters() if name.startswith(("src_embedding", "encoder"))}
    assert shared <= own.keys()


def test_halves_are_made_of_the_same_layers():
    encoder, decoder = built("encoder"), built("decoder")
    assert [type(layer) for layer in encoder.blocks] == [EncoderLayer] * 2
    assert [type(layer) for layer in decoder.blocks] == [DecoderLayer] * 2
    names = {name for name, _ in decoder.named_parameters()}
    assert not any("cross" in name for name in names)
    whole = {name for name, _ in built("transformer").named_parameters() if name.startswith("decoder")}
    assert {name for name in whole if "cross" not in name} == {n for n in names if n.startswith("decoder")}


@torch.inference_mode()
def test_padding_changes_nothing_of_an_encoder_alone(text):
    model = built("encoder")
    padded = torch.nn.functional.pad(text, (0, 2))
    alone = model(text, text != 0, text)
    torch.testing.assert_close(model(padded, padded != 0, padded)[:, :10], alone)
