"""Exports of each target hold what their page says, and nothing of the user's corpora."""

import random
import re
import zipfile

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.command import run_command
from tests.helpers.node import node_modules
from transformer_mt.cli import main

pytest.importorskip("ctranslate2")

__all__ = ["node_modules"]
PAGE = (ROOT / "docs/how_to/export.md").read_text(encoding="utf-8")
NOUNS, VERBS = ["fox", "owl", "elk", "cod", "bee", "ant"], ["sees", "hears", "likes", "finds"]


def sentences(seed, count):
    """Pairs of a made-up language, each with a number that makes it the only one of its kind."""
    draw = random.Random(seed)
    for _ in range(count):
        words = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS), draw.randint(10_000, 99_999)
        yield "the {} {} the {} of {}".format(*words), "der {} {}t den {} von {}".format(*words)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    """A run trained on files, of whose names and sentences nobody may learn."""
    folder = tmp_path_factory.mktemp("secret-home")
    pairs = {"secret-train": 900, "secret-valid": 60, "secret-test": 20}
    for seed, (name, count) in enumerate(pairs.items()):
        rows = "".join(f"{source}\t{target}\n" for source, target in sentences(seed, count))
        (folder / f"{name}.tsv").write_text(rows, encoding="utf-8")
    files = {name: {"file": str(folder / f"{name}.tsv"), "columns": [1, 2]} for name in pairs}
    config = {
        **TINY,
        "data": {
            **TINY["data"],
            "train": files["secret-train"],
            "valid": files["secret-valid"],
            "test": [files["secret-test"], {"from_train": {"share": 0.02}}],
        },
        "tokenizer": {"vocab_size": 320},
        "model": {**TINY["model"], "position": "sinusoidal"},
        "train": {**TINY["train"], "max_updates": 150, "validate_every": 75, "save_every": 75},
        "decode": {"max_length": 40},
    }
    (folder / "tiny.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    trained, scored = (
        run_command(*words, cwd=folder) for words in (("train", "tiny.yaml"), ("evaluate", "runs/tiny"))
    )
    assert trained.status == 0 and scored.status == 0, trained.err + scored.err
    return folder


@pytest.fixture(scope="module")
def exports(private, node_modules):
    """The folder or archive of each target."""
    made = {}
    # int8 may cost a tiny model too much BLEU, especially on processors whose int8 products saturate.
    exact = ["--quantization", "float32"]
    more = {"argos": exact, "onnx": exact, "browser": [*exact, "--runtime", str(node_modules)]}
    for target in ("ctranslate2", "huggingface", "argos", "onnx", "browser"):
        made[target] = private / f"out-{target}"
        words = ["export", "runs/tiny", str(made[target]), "--to", target, *more.get(target, [])]
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(private)
            assert main(words) == 0
    return made


def members(out):
    """Each file's name and bytes."""
    if out.is_file():
        with zipfile.ZipFile(out) as archive:
            names = (name for name in archive.namelist() if not name.endswith("/"))
            return {name.partition("/")[2]: archive.read(name) for name in names}
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def listed(target):
    """The files that the page names for a target."""
    section = PAGE.partition("## What leaves with an export")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if line.startswith("| ")][1:]
    listed_files = [files for targets, files, *_ in rows if target in targets or "all" in targets.split()]
    return {name for files in listed_files for name in re.findall(r"`([^`]+)`", files)}


@pytest.mark.parametrize("target", ["ctranslate2", "huggingface", "argos", "onnx", "browser"])
def test_the_page_lists_every_file_and_none_has_anything_of_a_corpus(exports, private, target):
    files = members(exports[target])
    assert set(files) == listed(target)
    sentence = f"(the|der) ({'|'.join(NOUNS)}) ({'|'.join(VERBS)})"  # every one begins so
    private_words = re.compile(f"secret|{re.escape(str(ROOT))}|{sentence}".encode())
    for name, content in files.items():
        assert not private_words.search(content), f"{target}: {name} holds {private_words.search(content)}"


def test_an_export_without_corpora_does_what_its_run_does(exports, private):
    line = next(sentences(5, 1))[0]
    for model in ("runs/tiny", exports["ctranslate2"]):
        done = run_command("translate", model, line, "--json", cwd=private)
        assert done.status == 0 and '"confidence"' in done.out, done.err
    empty = run_command("evaluate", exports["ctranslate2"], cwd=private)
    assert empty.status == 2 and "Traceback" not in empty.err


def test_what_is_asked_for_leaves(private):
    out = private / "out-asked"
    extras = [word for name in ("config", "held-out", "seen") for word in ("--with", name)]
    done = run_command("export", "runs/tiny", out, *extras, cwd=private)
    assert done.status == 0, done.err
    names = set(members(out))
    assert {"held_out.test.jsonl", "seen.safetensors"} <= names
    assert "secret-train.tsv" in (out / "config.yaml").read_text(encoding="utf-8")
    scored = run_command("evaluate", out, cwd=private)
    assert scored.status == 0 and "2.00% of the training corpora" in scored.out
    words = ("--to", "argos", "--with", "seen")
    refused = run_command("export", "runs/tiny", private / "x", *words, cwd=private)
    assert refused.status == 2 and "--with must be left out with --to argos" in refused.err
