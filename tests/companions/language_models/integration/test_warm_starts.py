"""A translation that begins with halves which were trained alone, or with a model of denoising."""

import gzip
import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.companions.language_models.integration.conftest import BERT, train_on_text
from tests.conftest import ROOT, TINY
from tests.helpers.command import run_command
from tests.helpers.companions import needs
from transformer_mt.config.load import load_config
from transformer_mt.config.root import Halves
from transformer_mt.corpora import toy
from transformer_mt.run_folder import RunFolder

pytestmark = needs("exchange")


SHORT = {**TINY["train"], "max_updates": 2, "validate_every": 2}


@pytest.fixture(scope="module")
def german(folder):
    """A decoder of the same shape as the encoder."""
    return train_on_text(folder, "german", "causal_lm", {**BERT, "kind": "decoder"}, ("de", "de"), **SHORT)[0]


def config_of(folder, name, beginning, **sections):
    values = {**TINY, "name": name, "init_from": beginning, "tokenizer": {}, "model": {"dropout": 0.1}}
    values = {**values, **sections}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_halves_of_two_languages_become_one_translator(bert, german, folder, monkeypatch):
    from transformer_mt.companions.exchange.importing.joined_halves import joined_halves

    monkeypatch.chdir(folder)
    halves = {"encoder": "runs/bert", "decoder": "runs/german"}
    path = config_of(folder, "warm", halves, train=SHORT)
    joined = joined_halves(load_config(path), Halves(**halves))
    found, encoder, decoder = (run.weights() for run in (joined, RunFolder(bert), RunFolder(german)))
    for name, tensor in found.items():
        if "cross" in name:
            continue
        half = encoder if name.startswith(("encoder", "src")) else decoder
        there = half[name]
        if name == "src_embedding.positions.embedding.weight":
            there = there[1:]  # the text of an encoder alone begins with <s>
        assert torch.equal(tensor, there), name
    result = run_command("train", "warm.yaml", cwd=folder)
    assert result.status == 0, result.err
    run = RunFolder(folder / "runs" / "warm")
    assert not run.tokenizer().shared and run.config().model.norm == "post"
    pieces = [half.tokenizer().models[0] for half in (RunFolder(bert), RunFolder(german))]
    assert run.tokenizer().models == tuple(pieces) or [*run.tokenizer().models] == pieces
    assert run_command("translate", run.path, "The cat sleeps.", cwd=folder).status == 0


def test_one_half_may_be_frozen_and_brings_its_vocabulary(bert, folder, monkeypatch):
    """The weights elsewhere are random."""
    from transformer_mt.companions.exchange.importing.joined_halves import joined_halves

    monkeypatch.chdir(folder)
    path = config_of(folder, "half", {"encoder": "runs/bert"}, train={**SHORT, "freeze": ["encoder"]})
    joined = joined_halves(load_config(path), Halves(encoder="runs/bert"))
    begun, encoder = joined.weights(), RunFolder(bert).weights()
    assert joined.tokenizer().shared and any("cross" in name for name in begun)
    result = run_command("train", "half.yaml", cwd=folder)
    assert result.status == 0, result.err
    same = "encoder.layers.0.feed_forward.inner.weight"
    for weights in (begun, RunFolder(folder / "runs" / "half").weights()):
        assert torch.equal(weights[same], encoder[same])


def test_a_child_of_an_encoder_need_not_name_its_kind(bert, folder):
    text = {"language": "en", "objective": "masked_lm"}
    sets = {name: {"toy": name, "size": size, **text} for name, size in (("train", 300), ("valid", 20))}
    data = {"source_lang": "en", "target_lang": "de", **sets, "max_length": 64}
    path = config_of(folder, "like_its_parent", "runs/bert", data=data, train=SHORT)
    result = run_command("train", path.name, cwd=folder)
    assert result.status == 0, result.err
    assert RunFolder(folder / "runs" / "like_its_parent").config().model.kind == "encoder"


def test_halves_that_do_not_fit_are_refused_with_all_reasons(bert, gpt, folder):
    config_of(folder, "unfit", {"encoder": "runs/bert", "decoder": "runs/gpt"}, model={"d_ff": 96})
    result = run_command("train", "unfit.yaml", cwd=folder)
    assert result.status == 2
    reasons = set(result.err.strip().splitlines()) - {"unfit: loading PyTorch"}
    assert reasons == {
        "`model.d_ff` must be 64, as in runs/bert, but is 96",
        "`model.d_ff` must be 64, as in runs/gpt, but is 96",
        "`model.norm` must be 'pre', as in runs/gpt, but is 'post'",
        "`model.feed_forward` must be 'gelu', as in runs/gpt, but is 'relu'",
        "`model.embedding_norm` must be False, as in runs/gpt, but is True",
    }


@pytest.mark.parametrize(
    "beginning, message",
    [
        ({"encoder": "runs/gpt"}, "`init_from.encoder` must be a run with model.kind: encoder, but runs/gpt"),
        ({"decoder": "runs/none"}, "runs/none"),
    ],
)
def test_what_is_no_such_half_is_told(beginning, message, gpt, folder):
    config_of(folder, "wrong", beginning)
    result = run_command("train", "wrong.yaml", cwd=folder)
    assert result.status == 2 and message in result.err


@pytest.fixture(scope="module")
def denoised(folder):
    """A whole Transformer that restores texts of both languages."""
    denoise = {"objective": "denoise"}
    values = {
        **TINY,
        "name": "denoised",
        "data": {
            "source_lang": "en", "target_lang": "de", "max_length": 64,
            "train": [{"toy": "train", "size": 800, **denoise, "language": each} for each in ("en", "de")],
            "valid": {"toy": "valid", "size": 10, **denoise, "language": "de"},
        },
        "model": {**TINY["model"], "norm": "post", "position": "learned", "embedding_norm": True},
        "train": {**TINY["train"], "max_updates": 120, "validate_every": 120, "save_every": 60},
    }  # fmt: skip
    (folder / "denoised.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = run_command("train", "denoised.yaml", cwd=folder)
    assert result.status == 0, result.err
    assert "try: `init_from: runs/denoised` in the config of a translation" in result.err
    return folder / "runs" / "denoised"


def test_a_translation_begins_with_a_denoiser(denoised, folder):
    few = {name: {"toy": name, "size": 5} for name in ("valid", "test")}
    data = {**TINY["data"], "valid": few["valid"], "test": [few["test"]]}
    train = {**TINY["train"], "max_updates": 1}
    path = config_of(folder, "child", "runs/denoised", data=data, train=train)
    assert run_command("train", path.name, "train.learning_rate=1e-9", cwd=folder).status == 0
    child, parent = (
        load_file(folder / "runs" / name / "model.safetensors") for name in ("child", "denoised")
    )
    assert child.keys() == parent.keys()
    evaluated = run_command("evaluate", "runs/child", cwd=folder)  # not compared with what translates nothing
    assert evaluated.status == 0 and "BLEU" in evaluated.out and "Traceback" not in evaluated.err
    for name, tensor in child.items():
        torch.testing.assert_close(tensor[: len(parent[name])], parent[name], atol=1e-6, rtol=0)


def test_a_denoiser_leaves_as_bart(denoised, folder):
    pytest.importorskip("transformers")
    from transformers import AutoModelForSeq2SeqLM, pipeline

    result = run_command("export", "runs/denoised", "bart", "--to", "huggingface", cwd=folder)
    assert result.status == 0, result.err
    assert "the same ids and logits within" in result.out
    model = AutoModelForSeq2SeqLM.from_pretrained(folder / "bart")
    assert type(model).__name__ == "BartForConditionalGeneration"
    (found,) = pipeline("fill-mask", model=str(folder / "bart"))("Der <mask> schläft.", top_k=1)
    assert found["sequence"]
    refused = run_command("export", "runs/denoised", "ct2", cwd=folder)
    assert refused.status == 2 and "data.train must have translations, but has denoise alone" in refused.err


# The shipped configs for plain text and classification train, on little data in the layout of theirs.


SMALL = [
    "model.d_model=32", "model.d_ff=64", "model.num_heads=2", "tokenizer.vocab_size=420",
    "train.max_updates=4", "train.validate_every=4", "train.save_every=2", "train.warmup=2",
    "train.batch_tokens=600",
]  # fmt: skip


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """`data/` with files of the names that the configs have, and a corpus in the hub's layout."""
    shipped = tmp_path_factory.mktemp("shipped")
    hub, sst2 = shipped / "captions", shipped / "data/tasks/sst2"
    for place in (hub, sst2):
        place.mkdir(parents=True)
    for split, name, size in (("train", "train", 800), ("valid", "dev", 8), ("test", "test", 8)):
        pairs = list(toy.generate(split, size))
        rows = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs)
        (hub / {"dev": "val"}.get(name, name)).with_suffix(".jsonl").write_text(rows, encoding="utf-8")
        labelled = "".join(f"{en}\t{int(' the ' in en)}\n" for en, _ in pairs)
        (sst2 / f"{name}.tsv.gz").write_bytes(gzip.compress(f"sentence\tlabel\n{labelled}".encode()))
    return shipped


def train(shipped, name, *words):
    result = run_command("train", ROOT / "configs" / f"{name}.yaml", *SMALL, *words, cwd=shipped)
    assert result.status == 0, result.err
    evaluated = run_command("evaluate", f"runs/{name}", cwd=shipped)
    assert evaluated.status == 0, evaluated.err
    return evaluated.out


def test_a_half_is_trained_on_a_column_of_a_hub_corpus_and_scored(shipped):
    assert "accuracy of masked tokens" in train(shipped, "bert_tiny", "data.hub=captions")


def test_a_classification_begins_with_masked_pretraining(shipped):
    masked = run_command("train", ROOT / "configs/sst2_masked.yaml", *SMALL, cwd=shipped)
    assert masked.status == 0, masked.err
    assert "accuracy" in train(shipped, "sst2", "init_from=runs/sst2_masked")
    lines = run_command("classify", "runs/sst2", cwd=shipped, stdin=b"A mouse.\n\n \nThe women.\n").out
    assert [line in ("0", "1") for line in lines.split("\n")] == [True, False, False, True, False]
