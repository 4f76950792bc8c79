"""A package of another team: installed, its parts are names of the YAML and its command one of ours."""

import re
import subprocess
import sys

import pytest
import yaml

from tests.conftest import ROOT, TINY
from tests.helpers.installation import Installation

STRANGER = ROOT / "tests/companions/stranger"
CONFIG = {
    **TINY,
    "model": {**TINY["model"], "attention": {"score": "sigmoid"}},
    "train": {**TINY["train"], "loss": "focal", "loss_settings": {"gamma": 1.0}},
    "decode": {"stages": ["vowels"]},
}


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """A scratch environment with our package and theirs."""
    folder = tmp_path_factory.mktemp("environment")
    made = Installation(folder)
    words = ["install", "-q", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(STRANGER)], check=True, capture_output=True)
    return made


def test_its_parts_are_used_from_yaml(installation, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    trained, translated = installation.run_all(
        ("train", "tiny.yaml"), ("translate", "runs/tiny", "The dog sleeps.", "--json"), cwd=tmp_path
    )
    assert trained.status == 0 and "done: runs/tiny holds update 24" in trained.err, trained.err
    assert translated.status == 0 and re.search(r'"problems": \[.*"\d+ vowels"\]', translated.out)
    assert installation.run("vowels", "a dog").out == "2\n"
    assert "vowels         count the vowels" in installation.run("--help").out


def test_without_it_a_run_names_what_is_missing(cli, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    status, _, err = cli("train", tmp_path / "tiny.yaml")
    assert status == 2
    assert "`model.attention.score` must be" in err and "but is 'sigmoid'" in err
    assert "`train.loss` must be 'cross_entropy', 'custom', " in err and "but is 'focal'" in err
    assert "`decode.stages.0` must be a name that an installed companion brings, but is 'vowels'" in err


def test_a_broken_one_is_named_in_one_line(tmp_path):
    installation = Installation(tmp_path)
    facts = tmp_path / "broken-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[transformer_mt.companions]\nbroken = broken:companion\n")
    (tmp_path / "broken.py").write_text("import not_there\n")
    shown = installation.run("--help")
    assert shown.status == 0 and "  serve " in shown.out
    assert shown.err == (
        "note: the companion broken is left out: broken:companion cannot be imported "
        "(No module named 'not_there')\n"
    )


def test_the_page_shows_this_very_package():
    page = (ROOT / "docs/how_to/extend.md").read_text(encoding="utf-8")
    for name in ("stranger.py", "stranger_parts.py"):
        assert (STRANGER / name).read_text(encoding="utf-8") in page
