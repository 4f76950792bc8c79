"""A training starts again with tcmalloc where it is installed."""

import ctypes.util
import json
import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from transformer_mt.cli.train import start_with_tcmalloc


@pytest.fixture
def started(monkeypatch):
    """The commands that the process was replaced by, and what they begin with; nothing is replaced."""
    found = []
    monkeypatch.setattr(os, "execv", lambda path, words: found.append((words, os.environ["LD_PRELOAD"])))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.4")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "argv", ["transformer-mt", "train", "a.yaml"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "transformer_mt", "train", "a.yaml"])
    for name in ("LD_PRELOAD", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    return found


def test_the_same_command_starts_again_once(started, monkeypatch):
    start_with_tcmalloc()
    assert started == [(["python", "-m", "transformer_mt", "train", "a.yaml"], "libtcmalloc_minimal.so.4")]
    monkeypatch.setenv("LD_PRELOAD", started[0][1])
    start_with_tcmalloc()
    assert len(started) == 1


def test_what_was_loaded_before_stays(started, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    start_with_tcmalloc()
    assert started[0][1] == "libtcmalloc_minimal.so.4 libother.so"


@pytest.mark.parametrize("what", ["no library", "another system", "a rank", "another program"])
def test_a_process_that_cannot_goes_on_as_it_is(started, monkeypatch, what):
    if what == "no library":
        monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    elif what == "another system":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif what == "a rank":
        monkeypatch.setenv("WORLD_SIZE", "2")
    else:
        monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "from elsewhere import main; main()"])
    start_with_tcmalloc()
    assert started == [] and "LD_PRELOAD" not in os.environ


def test_a_training_says_which_allocator_it_had(write_config, tmp_path):
    if ctypes.util.find_library("tcmalloc_minimal") is None:
        pytest.skip("tcmalloc is not installed")
    config = write_config(train={"max_updates": 2, "validate_every": 2})
    words = [sys.executable, "-m", "transformer_mt", "train", config, "--out", tmp_path / "run"]
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    subprocess.run(words, check=True, cwd=ROOT, env=environment)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["allocator"] == "tcmalloc"
