"""The shipped configs for plain text and classification train, on little data in the layout of theirs."""

import gzip
import json

import pytest

from tests.conftest import ROOT
from tests.helpers.command import run_command
from tests.helpers.companions import needs
from transformer_mt.corpora import toy

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
def folder(tmp_path_factory):
    """`data/` with files of the names that the configs have, and a corpus in the hub's layout."""
    folder = tmp_path_factory.mktemp("shipped")
    hub, lafand, sst2 = folder / "captions", folder / "data/lafand", folder / "data/tasks/sst2"
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
    return folder


def train(folder, name, *words):
    result = run_command("train", ROOT / "configs" / f"{name}.yaml", *SMALL, *words, cwd=folder)
    assert result.status == 0, result.err
    evaluated = run_command("evaluate", f"runs/{name}", cwd=folder)
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
def test_a_half_is_trained_used_and_exported(name, command, text, score, folder):
    pytest.importorskip("transformers")
    assert score in train(folder, name, "data.hub=captions")
    used = run_command(command, f"runs/{name}", text, cwd=folder)
    assert used.status == 0 and used.out.strip()
    exported = run_command("export", f"runs/{name}", f"{name}-hf", "--to", "huggingface", cwd=folder)
    assert exported.status == 0, exported.err


def test_a_translation_of_few_pairs_begins_with_denoising_their_text(folder):
    denoised = run_command("train", ROOT / "configs/denoise_low_resource.yaml", *SMALL, cwd=folder)
    assert denoised.status == 0, denoised.err
    assert "chrF++" in train(folder, "low_resource", "init_from=runs/denoise_low_resource")
    used = run_command("translate", "runs/low_resource", "The cat sleeps.", cwd=folder)
    assert used.status == 0, used.err


def test_a_classification_begins_from_scratch_and_with_masked_pretraining(folder):
    assert "accuracy" in train(folder, "sst2")
    masked = run_command("train", ROOT / "configs/sst2_masked.yaml", *SMALL, cwd=folder)
    assert masked.status == 0, masked.err
    words = [*SMALL, "init_from=runs/sst2_masked", "name=pretrained"]
    child = run_command("train", ROOT / "configs/sst2.yaml", *words, cwd=folder)
    assert child.status == 0, child.err
    label = run_command("classify", "runs/pretrained", "A mouse sees the women.", cwd=folder)
    assert label.out.strip() in ("0", "1")
    lines = run_command("classify", "runs/pretrained", cwd=folder, stdin=b"A mouse.\n\n \nThe women.\n").out
    assert [line in ("0", "1") for line in lines.split("\n")] == [True, False, False, True, False]
