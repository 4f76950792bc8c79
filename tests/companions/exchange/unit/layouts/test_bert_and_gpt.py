"""Halves alone compute the same as BertForMaskedLM and GPT2LMHeadModel."""

import pytest
import torch

pytest.importorskip("transformers")

import transformers

from transformer_mt.companions.exchange.layouts import to_bert, to_gpt2
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.model.build_model import build_model

SIZES = {"d_model": 16, "d_ff": 32, "num_heads": 2, "num_encoder_layers": 3, "num_decoder_layers": 3}
BERT = {"kind": "encoder", "norm": "post", "position": "learned", "embedding_norm": True}
GPT2 = {"kind": "decoder", "norm": "pre", "position": "learned"}
VARIANTS = [{"feed_forward": "gelu"}, {"feed_forward": "relu"}, {"tie_embeddings": False}]


def built(**changes):
    torch.manual_seed(0)
    model = build_model(config := ModelConfig.model_validate({**SIZES, **changes}), 30, 30, True, 12).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return config, model, dict(model.named_parameters())


def padded_text():
    torch.manual_seed(1)
    text = torch.randint(4, 30, (3, 10))
    text[1, 6:] = 0
    return text, text != 0


@pytest.mark.parametrize("variant", [*VARIANTS, {"output_bias": True}], ids=str)
@torch.inference_mode()
def test_an_encoder_is_bert(variant):
    config, model, weights = built(**BERT, **variant)
    shape = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        hidden_act=config.feed_forward, max_position_embeddings=13, layer_norm_eps=1e-5,
        tie_word_embeddings=False,
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(shape).eval()
    missing = theirs.load_state_dict(to_bert(config, weights), strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"bert.embeddings.position_ids"}
    text, mask = padded_text()
    found = theirs(input_ids=text, attention_mask=mask.long()).logits
    assert (found - model(text, mask, text)).abs()[mask].max() < 1e-4


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@torch.inference_mode()
def test_a_decoder_is_gpt2(variant):
    config, model, weights = built(**GPT2, **variant)
    shape = transformers.GPT2Config(
        vocab_size=30, n_embd=16, n_layer=3, n_head=2, n_inner=32, n_positions=12,
        activation_function=config.feed_forward, tie_word_embeddings=False, bos_token_id=2, eos_token_id=3,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(shape).eval()
    missing = theirs.load_state_dict(to_gpt2(config, weights), strict=False)
    assert not missing.unexpected_keys and not missing.missing_keys
    text, mask = padded_text()
    found = theirs(input_ids=text, attention_mask=mask.long()).logits
    assert (found - model(text, mask, text)).abs()[mask].max() < 1e-4
