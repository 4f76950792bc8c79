"""Masks, positions, states and the shapes of the whole model."""

import itertools
import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tests.helpers.updates import batch_of, pairs, tiny_model, updater
from transformer_mt import Translator
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.attention import MultiHeadAttention, attention_weights, plain_attention
from transformer_mt.model.build_model import build_model
from transformer_mt.model.fast_attention import cpu_attention, fast_attention, fused_attention
from transformer_mt.model.masks import Positions, attend_to
from transformer_mt.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from transformer_mt.model.variants.position_bias import Rotary

TINY = ModelConfig(d_model=16, d_ff=32, num_heads=2, num_encoder_layers=2, num_decoder_layers=3, dropout=0.0)


def tiny(**changes):
    torch.manual_seed(0)
    return build_model(TINY.model_copy(update=changes), 40, 50, False, max_length=30).eval()


def test_sinusoids_are_the_papers():
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(the same), one number at a time."""
    table = sinusoids(60, 8)
    for pos, i in itertools.product(range(60), range(4)):
        angle = pos / 10000 ** (2 * i / 8)
        expected = [math.sin(angle), math.cos(angle)]
        assert table[pos, 2 * i : 2 * i + 2].tolist() == pytest.approx(expected, abs=1e-6)


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
    mixed = attention._project(weights @ values, x)
    assert torch.allclose(mixed, attention(x, keys, values, mask), atol=1e-6)


def test_dropout_of_weights_is_the_same_in_each_attention():
    """With the mean over many samples: each drops weights, scaled so that the expectation stays."""
    q, k, v = torch.randn(3, 1, 2, 6, 8).unbind()
    expected = plain_attention(q, k, v)
    for attention in (plain_attention, fused_attention, cpu_attention):
        torch.manual_seed(0)
        samples = attention(*(x.expand(4000, -1, -1, -1) for x in (q, k, v)), dropout=0.3)
        assert not torch.allclose(samples[0], expected[0], atol=1e-3)
        assert torch.allclose(samples.mean(0), expected[0], atol=0.1)


def test_embeddings_begin_with_variance_one_and_learned_positions_as_large_as_sinusoids():
    config = ModelConfig.model_validate({"d_model": 256, "num_heads": 4, "position": "learned"})
    embedding = build_model(config, 2000, 2000, True, max_length=100).src_embedding
    assert (embedding.tokens.weight * math.sqrt(256)).std().item() == pytest.approx(1.0, abs=0.02)
    rms = embedding.positions.embedding.weight.detach().square().mean().sqrt()
    assert rms == pytest.approx(0.5**0.5, abs=0.03)


def test_logits_have_a_number_for_each_target_piece():
    model = tiny(norm="post", position="learned")
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


@pytest.mark.parametrize("shared, tie, tables", [(True, True, 1), (False, True, 2), (True, False, 3)])
def test_tying_shares_all_three_or_the_decoders_two_or_nothing(shared, tie, tables):
    model = build_model(TINY.model_copy(update={"tie_embeddings": tie}), 40, 40, shared, 30)
    tgt, output = model.tgt_embedding.tokens.weight, model.output.weight
    found = {id(table) for table in (model.src_embedding.tokens.weight, tgt, output)}
    assert len(found) == tables and (tgt is output) is tie


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
    for is_training in (True, False):
        model.train(is_training)
        assert torch.equal(model(src, src != 0, tgt), model(src, src != 0, tgt)) is not is_training


def test_the_base_model_has_the_papers_size():
    """Table 3: 65 million parameters, with 37,000 joint pieces."""
    with torch.device("meta"):  # no memory, no random numbers
        model = build_model(ModelConfig(norm="post"), 37_000, 37_000, True, 256)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) in (63, 64, 65)


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


@pytest.mark.parametrize(
    "search",
    [
        {"no_repeat_ngram": 2, "min_length": 3, "banned": ["Hund"]},
        {"search": "sample", "samples": 3, "top_k": 10, "top_p": 0.8, "temperature": 0.8},
        {"search": "mbr", "samples": 5},
    ],
    ids=str,
)
def test_searches_do_not(tiny_run, search):
    translator = Translator.load(tiny_run, device="cpu", decode=search)
    with NoFloat64():
        translator.translate(["The dog sleeps.", "The old teacher sees a small bird."], align=True)


@pytest.mark.parametrize(
    "optimizer, position",
    [("adamw", "sinusoidal"), ("muon", "rotary"), ("adamw", "relative"), ("muon", "alibi")],
)
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
SHAPES = [{"norm": norm, "position": p} for norm, p in zip(itertools.cycle(("pre", "post")), POSITIONS)]
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


@torch.inference_mode()
def test_an_encoder_alone_is_the_encoder_of_the_whole(text):
    """And a decoder alone has the weights of its decoder, but for attention to a source."""
    whole, half = built("transformer"), built("encoder")
    own, of_whole = dict(half.named_parameters()), dict(whole.named_parameters())
    assert {name for name in of_whole if name.startswith(("src_embedding", "encoder"))} <= own.keys()
    for name in own.keys() & of_whole.keys():
        own[name].copy_(of_whole[name])
    mask = torch.arange(10) < torch.tensor([[10], [7], [4]])
    memory = half.encoder(half.src_embedding(text), mask[:, None, None])
    torch.testing.assert_close(memory, whole.encode(text, mask))
    names = {name for name, _ in built("decoder").named_parameters()}
    assert not any("cross" in name for name in names)
    decoder = {name for name in of_whole if name.startswith("decoder") and "cross" not in name}
    assert decoder == {name for name in names if name.startswith("decoder")}


@torch.inference_mode()
def test_padding_changes_nothing_of_an_encoder_alone(text):
    model = built("encoder")
    padded = torch.nn.functional.pad(text, (0, 2))
    alone = model(text, text != 0, text)
    torch.testing.assert_close(model(padded, padded != 0, padded)[:, :10], alone)
