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


@pytest.fixture(scope="module")
def german(folder):
    """A decoder of the same shape as the encoder."""
    return train_on_text(folder, "german", "causal_lm", {**BERT, "kind": "decoder"}, ("de", "de"))[0]


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
    path = config_of(folder, "warm", halves)
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


def test_one_half_begins_with_its_vocabulary_and_random_weights_elsewhere(bert, folder, monkeypatch):
    from transformer_mt.companions.exchange.importing.joined_halves import joined_halves

    monkeypatch.chdir(folder)
    path = config_of(folder, "half", {"encoder": "runs/bert"})
    joined = joined_halves(load_config(path), Halves(encoder="runs/bert"))
    weights, encoder = joined.weights(), RunFolder(bert).weights()
    same = "encoder.layers.0.feed_forward.inner.weight"
    assert torch.equal(weights[same], encoder[same])
    assert joined.tokenizer().shared and any("cross" in name for name in weights)
    result = run_command("train", "half.yaml", cwd=folder)
    assert result.status == 0, result.err


def test_a_half_may_be_frozen(bert, folder, monkeypatch):
    monkeypatch.chdir(folder)
    train = {**TINY["train"], "max_updates": 2, "validate_every": 2, "freeze": ["encoder"]}
    path = config_of(folder, "frozen", {"encoder": "runs/bert"}, train=train)
    result = run_command("train", path.name, cwd=folder)
    assert result.status == 0, result.err
    weights, encoder = RunFolder(folder / "runs" / "frozen").weights(), RunFolder(bert).weights()
    same = "encoder.layers.0.feed_forward.inner.weight"
    assert torch.equal(weights[same], encoder[same])


def test_a_child_of_an_encoder_need_not_name_its_kind(bert, folder):
    text = {"language": "en", "objective": "masked_lm"}
    data = {
        "source_lang": "en",
        "target_lang": "de",
        "train": {"toy": "train", "size": 300, **text},
        "valid": {"toy": "valid", "size": 20, **text},
        "max_length": 64,
    }
    train = {**TINY["train"], "max_updates": 2, "validate_every": 2}
    path = config_of(folder, "like_its_parent", "runs/bert", data=data, train=train)
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
        (
            {"encoder": "runs/gpt"},
            "`init_from.encoder` must be a run with model.kind: encoder, but runs/gpt has",
        ),
        ({"decoder": "runs/none"}, "runs/none"),
    ],
)
def test_what_is_no_such_half_is_told(beginning, message, gpt, folder):
    config_of(folder, "wrong", beginning)
    result = run_command("train", "wrong.yaml", cwd=folder)
    assert result.status == 2 and message in result.err and "Traceback" not in result.err


@pytest.fixture(scope="module")
def denoised(folder):
    """A whole Transformer that restores texts of both languages."""
    values = {
        **TINY,
        "name": "denoised",
        "data": {
            "source_lang": "en",
            "target_lang": "de",
            "train": [
                {"toy": "train", "size": 800, "objective": "denoise", "language": language}
                for language in ("en", "de")
            ],
            "valid": {"toy": "valid", "size": 40, "objective": "denoise", "language": "de"},
            "max_length": 64,
        },
        "model": {**TINY["model"], "norm": "post", "position": "learned", "embedding_norm": True},
        "train": {**TINY["train"], "max_updates": 300, "validate_every": 150, "save_every": 150},
    }
    (folder / "denoised.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    result = run_command("train", "denoised.yaml", cwd=folder)
    assert result.status == 0, result.err
    assert "try: `init_from: runs/denoised` in the config of a translation" in result.err
    return folder / "runs" / "denoised"


def test_a_translation_begins_with_a_denoiser(denoised, folder):
    path = config_of(folder, "child", "runs/denoised", train={**TINY["train"], "max_updates": 1})
    assert run_command("train", path.name, "train.learning_rate=1e-9", cwd=folder).status == 0
    child, parent = (
        load_file(folder / "runs" / name / "model.safetensors") for name in ("child", "denoised")
    )
    assert child.keys() == parent.keys()
    evaluated = run_command(
        "evaluate", "runs/child", cwd=folder
    )  # no comparison with what translates nothing
    assert evaluated.status == 0 and "BLEU" in evaluated.out and "Traceback" not in evaluated.err
    for name, tensor in child.items():
        torch.testing.assert_close(tensor[: len(parent[name])], parent[name], atol=1e-6, rtol=0)


def test_denoising_and_translation_are_trained_together(folder):
    data = {
        **TINY["data"],
        "train": [
            TINY["data"]["train"],
            {"toy": "train", "objective": "denoise", "language": "de", "weight": 0.5},
        ],
    }
    path = config_of(folder, "mixed", None, data=data, tokenizer=TINY["tokenizer"], model=TINY["model"])
    result = run_command("train", path.name, cwd=folder)
    assert result.status == 0, result.err
    table = RunFolder(folder / "runs" / "mixed").corpora()
    assert [corpus["uses_per_epoch"] for corpus in table] == [1, pytest.approx(0.5)]
    status, out, _ = run_command("evaluate", "runs/mixed", cwd=folder)
    assert status == 0 and "BLEU" in out


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
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "tokenizer.vocab_size=420",
    "train.max_updates=20",
    "train.validate_every=10",
    "train.save_every=10",
    "train.warmup=5",
    "train.batch_tokens=600",
]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """`data/` with files of the names that the configs have, and a corpus in the hub's layout."""
    shipped = tmp_path_factory.mktemp("shipped")
    hub, lafand, sst2 = shipped / "captions", shipped / "data/lafand", shipped / "data/tasks/sst2"
    for place in (hub, lafand, sst2):
        place.mkdir(parents=True)
    for split, name, size in (("train", "train", 800), ("valid", "dev", 30), ("test", "test", 30)):
        pairs = list(toy.generate(split, size))
        rows = "".join(json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs)
        (hub / {"dev": "val"}.get(name, name)).with_suffix(".jsonl").write_text(rows, encoding="utf-8")
        for side, language in ((0, "en"), (1, "yor")):
            text = "".join(f"{pair[side]}\n" for pair in pairs).encode()
            (lafand / f"en-yor.{name}.{language}.gz").write_bytes(gzip.compress(text))
        labelled = "".join(f"{en}\t{int(' the ' in en)}\n" for en, _ in pairs)
        (sst2 / f"{name}.tsv.gz").write_bytes(gzip.compress(f"sentence\tlabel\n{labelled}".encode()))
    return shipped


def train(shipped, name, *words):
    result = run_command("train", ROOT / "configs" / f"{name}.yaml", *SMALL, *words, cwd=shipped)
    assert result.status == 0, result.err
    evaluated = run_command("evaluate", f"runs/{name}", cwd=shipped)
    assert evaluated.status == 0, evaluated.err
    return evaluated.out


@needs("exchange")
@pytest.mark.parametrize(
    "name, command, text, score",
    [
        ("bert_tiny", "fill", "A [MASK] sleeps.", "accuracy of masked tokens"),
        ("gpt_tiny", "complete", "The old", "bits per character"),
    ],
)
def test_a_half_is_trained_used_and_exported(name, command, text, score, shipped):
    pytest.importorskip("transformers")
    assert score in train(shipped, name, "data.hub=captions")
    used = run_command(command, f"runs/{name}", text, cwd=shipped)
    assert used.status == 0 and used.out.strip()
    exported = run_command("export", f"runs/{name}", f"{name}-hf", "--to", "huggingface", cwd=shipped)
    assert exported.status == 0, exported.err


def test_a_translation_of_few_pairs_begins_with_denoising_their_text(shipped):
    denoised = run_command("train", ROOT / "configs/denoise_low_resource.yaml", *SMALL, cwd=shipped)
    assert denoised.status == 0, denoised.err
    assert "chrF++" in train(shipped, "low_resource", "init_from=runs/denoise_low_resource")
    used = run_command("translate", "runs/low_resource", "The cat sleeps.", cwd=shipped)
    assert used.status == 0, used.err


def test_a_classification_begins_from_scratch_and_with_masked_pretraining(shipped):
    assert "accuracy" in train(shipped, "sst2")
    masked = run_command("train", ROOT / "configs/sst2_masked.yaml", *SMALL, cwd=shipped)
    assert masked.status == 0, masked.err
    words = [*SMALL, "init_from=runs/sst2_masked", "name=pretrained"]
    child = run_command("train", ROOT / "configs/sst2.yaml", *words, cwd=shipped)
    assert child.status == 0, child.err
    label = run_command("classify", "runs/pretrained", "A mouse sees the women.", cwd=shipped)
    assert label.out.strip() in ("0", "1")
    lines = run_command("classify", "runs/pretrained", cwd=shipped, stdin=b"A mouse.\n\n \nThe women.\n").out
    assert [line in ("0", "1") for line in lines.split("\n")] == [True, False, False, True, False]
