"""A package of another team: installed, its parts are names of the YAML and its command one of ours."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.companions import needs
from tests.helpers.installation import Installation

STRANGER = ROOT / "tests/companions/stranger"
CONFIG = {  # a part of each kind that a YAML can name
    **TINY,
    "data": {
        **TINY["data"],
        "valid": {"toy": "valid", "size": 10},
        "train": [
            TINY["data"]["train"],
            {"numbers": 200},
            {"toy": "train", "size": 100, "language": "de", "objective": "reverse"},
        ],
        "changes": [{"swap": {"share": 0.5}}],
    },
    "model": {
        **TINY["model"],
        "attention": {"score": "sigmoid"},
        "position": "kerple",
        "norm": "sandwich",
        "norm_kind": "scale",
        "feed_forward": {"experts": {"num": 3}},
        "d_ff": 96,
    },
    "train": {
        **TINY["train"],
        "max_updates": 12,
        "validate_every": 6,
        "save_every": 3,
        "learning_rate": 0.001,
        "loss": {"focal": {"gamma": 1.0}},
        "optimizer": "lion",
        "schedule": {"trapezoid": {"decay": 0.5}},
        "monitor": "first word",
        "loggers": ["csv"],
    },
    "decode": {"stages": ["vowels"], "rules": ["no_digits"]},
}
NUMBERS = {"train": [TINY["data"]["train"], {"numbers": 200}], "changes": CONFIG["data"]["changes"]}
ONLY_TRAINED = {**CONFIG, "model": TINY["model"], "decode": {}, "data": {**TINY["data"], **NUMBERS}}


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A scratch environment with our package and theirs."""
    folder = tmp_path_factory.mktemp("environment")
    made = Installation(folder)
    source = shutil.copytree(STRANGER, tmp_path_factory.mktemp("source") / "stranger")  # pip builds in it
    words = ["install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(source)], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def trained(installation, tmp_path_factory):
    """The folder of a run with all its parts, and what the training said."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    result = installation.run("train", "tiny.yaml", cwd=folder)
    assert result.status == 0 and "done: runs/tiny holds update 12" in result.err, result.err
    return folder


@pytest.fixture
def only_trained(tiny_run, tmp_path):
    """A run that used its parts in training alone. That it did only its config says."""
    run = shutil.copytree(tiny_run, tmp_path / "only_trained")
    (run / "config.yaml").write_text(yaml.safe_dump(ONLY_TRAINED), encoding="utf-8")
    return run


def test_its_parts_are_used_from_yaml(installation, trained):
    (trained / "my.link").write_text("runs/tiny")
    (trained / "in.list").write_text(json.dumps(["The dog sleeps.", "Two cats."]))
    words = [
        ("translate", "my.link", "The dog sleeps.", "--json"),
        ("translate", "my.link", "-i", "in.list", "-o", "out.list"),
    ]
    translated, document = installation.run_all(*words, cwd=trained)
    assert translated.status == 0 and re.search(r'"problems": \[.*"\d+ vowels"\]', translated.out)
    assert document.status == 0 and len(json.loads((trained / "out.list").read_text())) == 2
    assert "train/loss" in (trained / "runs/tiny/log.csv").read_text()
    scores = [json.loads(line) for line in (trained / "runs/tiny/metrics.jsonl").read_text().splitlines()]
    assert any(score["name"] == "first word" for entry in scores for score in entry.get("scores", []))
    assert installation.run("vowels", "a dog").out == "2\n"


def test_its_resource_and_its_engine_change_the_search(installation, tiny_run, cli, tmp_path):
    (tmp_path / "least").write_text("14")
    words = "translate", tiny_run, "The dog sleeps.", "--json"
    usual, options = cli(*words), (("--least", tmp_path / "least"), ("--engine", "copy"))
    longer, copied = installation.run_all(*((*words, *more) for more in options), cwd=tmp_path)
    assert longer.status == 0, longer.err
    assert len(json.loads(longer.out)["tokens"]) >= 14 > len(json.loads(usual.out)["tokens"])
    assert json.loads(copied.out)["translation"] == "The dog sleeps."


def test_a_killed_run_with_them_ends_with_equal_bytes(installation, trained, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    killed = installation.start("train", "tiny.yaml", cwd=tmp_path)
    while killed.runs and not (tmp_path / "runs/tiny/checkpoints/step-00000006").exists():
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait().status == -signal.SIGKILL
    resumed = installation.run("train", "tiny.yaml", cwd=tmp_path)
    assert resumed.status == 0 and "resuming from" in resumed.err, resumed.err
    weights = [folder / "runs/tiny/model.safetensors" for folder in (trained, tmp_path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


@needs("exchange")
def test_its_form_of_export_is_proven(installation, only_trained, tmp_path):
    exported = installation.run("export", only_trained, "model.zip", "--to", "zip", cwd=tmp_path)
    assert exported.status == 0, exported.err
    assert any(name.endswith("model.bin") for name in zipfile.ZipFile(tmp_path / "model.zip").namelist())


def test_without_it_a_run_names_what_is_missing_and_where_it_came_from(cli, trained):
    status, _, err = cli("translate", trained / "runs/tiny", "The dog sleeps.")
    assert status == 2
    lines = [line.split(": ", 1)[1] for line in err.splitlines()]
    assert lines == [
        f"`{key}` needs the {kind} {name}, which is not here: stranger.{place} of stranger 0.1"
        for key, kind, name, place in (
            ("model.norm", "residual", "sandwich", "residual.Sandwich"),
            ("model.norm_kind", "norm", "scale", "norm.ScaleNorm"),
            ("model.feed_forward", "feed forward", "experts", "feed_forward.Experts"),
            ("model.position", "position", "kerple", "position.Kerple"),
            ("model.attention.score", "attention score", "sigmoid", "attention_score.Sigmoid"),
            ("decode.stages.0", "stage", "vowels", "stage.Vowels"),
            ("decode.rules.0", "rule", "no_digits", "rule.NoDigits"),
        )
    ]


def test_a_run_translates_without_the_parts_that_only_trained_it(cli, only_trained, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(ONLY_TRAINED), encoding="utf-8")
    assert cli("translate", only_trained, "The dog sleeps.")[0] == 0
    assert cli("evaluate", only_trained, "--beam", "1")[0] == 0
    status, _, err = cli("train", "tiny.yaml")
    assert status == 2 and "`train.loss` must be 'cross_entropy', " in err and "but is 'focal'" in err


def test_a_mistake_in_the_settings_of_a_part_is_found_before_any_work(installation, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    words = [
        ["train.loss.focal.gama=2", "train.loss.focal: `gama` is not a key; did you mean `gamma`?"],
        ["model.feed_forward={experts: {num: 1}}", "model.feed_forward.experts: `num` must be greater than"],
        ["train.optimizer={lion: {x: 1}}", "`train.optimizer.lion` must be left out: lion has no settings"],
        ["data.changes=[{swap: {share: 2}}]", "data.changes.swap: `share` must be less than or equal to 1"],
    ]
    results = installation.run_all(*(("train", "tiny.yaml", setting) for setting, _ in words), cwd=tmp_path)
    for result, (_, message) in zip(results, words, strict=True):
        assert result.status == 2 and message in result.err, result.err
    assert not (tmp_path / "runs").exists()


def test_the_page_shows_this_very_package():
    page = (ROOT / "docs/how_to/extend.md").read_text(encoding="utf-8")
    for file in sorted((STRANGER / "stranger").glob("*.py")):
        assert file.read_text(encoding="utf-8") in page, file.name
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 40
