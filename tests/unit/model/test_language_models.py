"""The Transformer's halves alone: the same layers, and nothing of the other half."""

import itertools

import pytest
import torch

from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model
from transformer_mt.model.transformer import DecoderLayer, EncoderLayer

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
