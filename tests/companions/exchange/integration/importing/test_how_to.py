"""The commands of docs/how_to/adapt_public_models.md, with a small model in the place of the public one."""

import re
import shlex

import pytest
import yaml

pytest.importorskip("transformers")

from tests.conftest import ROOT, TINY
from tests.helpers.command import run_command
from tests.helpers.public_models import LEARNS
from transformer_mt.corpora import toy


def commands():
    page = (ROOT / "docs/how_to/adapt_public_models.md").read_text(encoding="utf-8")
    (block, *_) = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.fixture
def folder(tmp_path):
    """A folder with a public model in `opus-mt-en-de`, and 500 pairs."""
    pairs = list(toy.generate("train", 2500))[-500:]
    (tmp_path / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs), encoding="utf-8")
    config = {**TINY, "name": "public", "model": {**TINY["model"], "norm": "post", "feed_forward": "silu"}}
    config["train"] = {**TINY["train"], **LEARNS}
    (tmp_path / "public.yaml").write_text(yaml.safe_dump(config))
    assert run_command("train", "public.yaml", cwd=tmp_path).status == 0
    export = ["export", "runs/public", "opus-mt-en-de", "--to", "huggingface"]
    result = run_command(*export, cwd=tmp_path)
    assert result.status == 0, result.err
    return tmp_path


def test_four_commands_adapt_compare_and_export(folder):
    new, train, evaluate, export = commands()

    def run(words):
        result = run_command(*(word.replace("Helsinki-NLP/", "") for word in words), cwd=folder)
        assert result.status == 0, result.err
        return result

    run(new)
    text = (folder / "mine.yaml").read_text()
    assert "init_from: {huggingface: opus-mt-en-de}" in text
    # The rate that is written is for a model that can translate; this one is to learn something in seconds.
    # Limits are as the other runtimes have them, whatever the source.
    limits = ["decode.max_length=100", "decode.max_length_ratio=100.0", "decode.stop_early=true"]
    run([*train, "train.learning_rate=0.005", *limits])
    table = run(evaluate).out
    assert "importing" not in table and "BLEU" in table and "| before | after |" in re.sub(" +", " ", table)
    run(export)
    assert (folder / "opus-mt-en-de-mine" / "source.spm").read_bytes() == (
        folder / "opus-mt-en-de" / "source.spm"
    ).read_bytes()
    card = (folder / "opus-mt-en-de-mine" / "README.md").read_text()
    assert "license: cc-by-4.0" in card and "It was adapted from opus-mt-en-de." in card
