"""Every model that can leave as a Hugging Face folder computes and translates the same there."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

pytest.importorskip("transformers")

from transformer_mt.companions.exchange.export.export import export
from transformer_mt.companions.exchange.export.to_argos import ToArgos
from transformer_mt.companions.exchange.export.to_huggingface import ToHuggingFace
from transformer_mt.config.model_section import AttentionConfig, ScoresConfig
from transformer_mt.corpora import toy
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS
from transformer_mt.errors import InputError, WorkError
from transformer_mt.run_folder import RunFolder
from transformer_mt.translation.engines.torch_engine import load_model

KINDS = [
    (True, {"feed_forward": "gelu", "num_encoder_layers": 2, "output_bias": True}),
    (False, {"norm": "post", "feed_forward": "gelu", "num_decoder_layers": 2}),
    (True, {"norm": "post", "tie_embeddings": False}),
    (False, {"norm": "post", "tie_embeddings": False}),
    (True, {"norm": "post", "feed_forward": "silu", "output_bias": True}),
    (True, {"position": "learned", "embedding_norm": True, "norm": "post", "output_bias": True}),
    (True, {"position": "learned", "embedding_norm": True}),
]


def load(folder):
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    return model, AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("shared, model", KINDS, ids=str)
def test_an_exported_model_translates_and_computes_as_its_run(shared, model, untrained_run, tmp_path):
    run = untrained_run(shared, **model)
    probe = tmp_path / "probe.txt"
    probe.write_text("".join(f"{src}\n" for src, _ in toy.generate("test", 6)), encoding="utf-8")
    proof = export(RunFolder(run), tmp_path / "hf", ToHuggingFace(), str(probe))  # compares translations
    assert proof.identical + proof.left_out >= 6
    ours, tokenizer = load_model(RunFolder(run), RunFolder(run).config())
    theirs, their_tokenizer = load(tmp_path / "hf")
    text = "A cat </s> sings. <pad> ünd 猫 >>de<<x"  # nothing of it is special
    ids = tokenizer.encode_src([text])[0]
    assert their_tokenizer(text)["input_ids"] == [*ids, EOS]
    src = torch.tensor([[*ids, EOS], [*ids[:3], EOS, *[0] * (len(ids) - 3)]])
    tgt = torch.tensor([[BOS, *range(5, 15)], [BOS, *range(25, 35)]])
    with torch.inference_mode():
        expected = ours.eval()(src, src != 0, tgt)
        found = theirs(input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt).logits
    assert (expected - found).abs().max() < 1e-5


def test_greedy_translations_and_their_scores_are_the_same(tiny_run, tmp_path):
    decode = {"beam": 1, "length_penalty": 0.5}
    run = tmp_path / "run"
    run.mkdir()
    (run / "tokenizer.model").symlink_to(tiny_run / "tokenizer.model")
    # Greedy translations of the last update never end.
    (run / "model.safetensors").symlink_to(tiny_run / "averaging" / "step-00000018.safetensors")
    from transformer_mt.config.load import dump_config

    (run / "config.yaml").write_text(dump_config(RunFolder(tiny_run).config(decode)), encoding="utf-8")
    proof = export(RunFolder(run), tmp_path / "hf", ToHuggingFace(), None)
    assert proof.identical >= 30 and proof.largest_difference < 1e-5
    generation = json.loads((tmp_path / "hf" / "generation_config.json").read_text())
    assert (generation["num_beams"], generation["length_penalty"]) == (1, 0.5)


def test_an_export_that_computes_otherwise_is_not_kept(tiny_run, tmp_path):
    class OtherPositions(ToHuggingFace):
        def write(self, run, folder):
            super().write(run, folder)
            file, name = folder / "model.safetensors", "model.encoder.embed_positions.weight"
            weights = load_file(file)
            save_file({**weights, name: weights[name].flip(1).contiguous()}, file, {"format": "pt"})

    with pytest.raises(WorkError, match="it was not kept"):
        export(RunFolder(tiny_run), tmp_path / "hf", OtherPositions(), None)
    assert list(tmp_path.iterdir()) == []


def test_what_transformers_cannot_hold_is_refused_with_all_reasons(untrained_run, tmp_path):
    run = untrained_run(False, position="rotary", feed_forward="swiglu", tie_embeddings=False)
    with pytest.raises(InputError) as error:
        export(RunFolder(run), tmp_path / "hf", ToHuggingFace(), None)
    assert str(error.value).split("\n") == [
        "Hugging Face cannot hold this model: model.position must be sinusoidal, but is rotary",
        "Hugging Face cannot hold this model: tokenizer.shared must be true with norm: pre, but is false",
        "Hugging Face cannot hold this model: model.tie_embeddings must be true with norm: pre, but is false",
        "Hugging Face cannot hold this model: model.feed_forward must be relu, gelu or silu, but is swiglu",
        ToHuggingFace.advice,
    ]
    config = RunFolder(run).config()
    attention = AttentionConfig(score=ScoresConfig(cross="additive"), window=3, cross="local_m", hard=True)
    odd = {"attention": attention, "position": "sinusoidal", "feed_forward": "relu", "norm": "post"}
    odd |= {"norm_kind": "rms", "qk_norm": True, "num_kv_heads": 2, "share_layers": True}
    odd_config = config.model_copy(update={"model": config.model.model_copy(update=odd)})
    assert ToHuggingFace().reasons_against(odd_config) == [
        "model.attention.window must be 0, but is 3",
        "model.attention.cross must be global, but is local_m",
        "model.attention.hard must be false, but is true",
        "model.norm_kind must be layer, but is rms",
        "model.qk_norm must be false, but is true",
        "model.num_kv_heads must be left out, but is 2",
        "model.share_layers must be false, but is true",
        "model.attention.score must be scaled_dot, but is additive (cross)",
    ]
    unlike_bart = {"position": "learned", "norm": "post", "feed_forward": "gelu"}
    unlike_bart_config = config.model_copy(update={"model": config.model.model_copy(update=unlike_bart)})
    assert ToHuggingFace().reasons_against(unlike_bart_config) == [
        "model.embedding_norm must be true with position: learned, but is false",
        "tokenizer.shared must be true with position: learned, but is false",
        "model.tie_embeddings must be true with position: learned, but is false",
    ]
    recurrent = config.model.model_copy(update={"kind": "recurrent"})
    assert ToHuggingFace().reasons_against(config.model_copy(update={"model": recurrent})) == [
        "model.kind must be transformer, but is recurrent"
    ]


def test_language_pieces_are_refused_where_nothing_puts_them_before_a_source(untrained_run):
    config = RunFolder(untrained_run()).config()
    data = config.data.model_copy(update={"language_pieces": True})
    (reason,) = ToArgos().reasons_against(config.model_copy(update={"data": data}))
    assert reason == "data.language_pieces must be false, but is true; its parent has several languages"


def test_settings_of_the_search_that_transformers_has_not_are_said(tiny_run, tmp_path):
    config = RunFolder(tiny_run).config({"length_penalty_form": "gnmt"})
    supported, without = ToHuggingFace().supported_settings(config.decode)
    missing = ["length_penalty_form", "lowercase_capitals", "protect_usual"]
    assert without == missing
    assert supported.length_penalty_form == "plain"


def test_without_transformers_the_error_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'transformer-mt\[huggingface\]'"):
        ToHuggingFace()
