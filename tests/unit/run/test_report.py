"""The report of a run: its diagnosis and its environment."""

import math
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from tests.helpers.updates import CPU
from transformer_mt.config import load_config
from transformer_mt.files import read_objects
from transformer_mt.run import report as module
from transformer_mt.run.report import diagnosis


def curves(name):
    entries = list(read_objects(ROOT / "tests" / "curves" / f"{name}.jsonl"))
    return [*entries, {"event": "end", "step": entries[-1]["step"]}]


def config(*settings):
    return load_config(ROOT / "configs" / "demo.yaml", settings)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ("max_updates=500 schedule=inverse_sqrt", "raise train.max_updates (500) and run the"),
        ("max_updates=500 schedule=cosine", "(500) and start over, as the schedule ends"),
        ("max_epochs=5", "raise train.max_epochs (5), and train.max_updates if it is less, and"),
        ("max_updates=900 patience=30", "raise train.max_updates (900) and start over"),
    ],
)
def test_a_loss_that_still_fell_names_what_ended_the_training(settings, advice):
    told = diagnosis(config(*(f"train.{setting}" for setting in settings.split())), curves("improving"))
    valid = [entry["loss"] for entry in curves("improving") if entry["event"] == "valid"]
    fell = f"The validation loss still fell at the end, from {valid[-2]:.3f} to {valid[-1]:.3f}. To train"
    assert told.startswith(fell) and advice in told


def test_patience_is_named_where_it_ended_the_training():
    entries = [{**e, "stale": 3} if e["event"] == "valid" else e for e in curves("improving")]
    settings = ["train.max_updates=900", "train.max_epochs=50", "train.patience=3"]
    assert "raise train.patience (3) and run" in diagnosis(config(*settings), entries)


def test_losses_that_part_are_overfitting():
    told = diagnosis(config(), curves("overfitting"))
    assert told.startswith("The model overfits: since update 140 the validation loss rose from ")
    assert "while the training loss fell from" in told
    rising = [{**e, "ppl": 2.0 + e["step"]} if e["event"] == "train" else e for e in curves("overfitting")]
    assert diagnosis(config(), rising) == ""


def test_fine_tuning_that_does_not_help_is_said():
    entries = curves("improving")
    parent = {**next(entry for entry in entries if entry["event"] == "valid"), "step": 0, "is_best": True}
    worse = [{**entry, "is_best": False} if entry["event"] == "valid" else entry for entry in entries]
    child = config("init_from=runs/parent")
    assert diagnosis(child, [parent, *worse]).startswith("Fine-tuning did not help: the parent model has")
    average = {"event": "average", "step": 500, "chosen": True}
    assert diagnosis(child, [parent, *worse[:-1], average, worse[-1]]).startswith("The validation loss still")


def test_what_shows_nothing_has_no_diagnosis():
    entries = curves("improving")
    assert diagnosis(config(), []) == diagnosis(config(), entries[:-1]) == ""  # not ended
    no_loss = [{**e, "loss": math.nan} if e["event"] == "valid" else e for e in entries]
    assert diagnosis(config(), no_loss) == ""


def test_a_report_ends_with_the_diagnosis(tiny_run):
    report = (tiny_run / "report.md").read_text(encoding="utf-8")
    assert report.rstrip().split("\n## ")[-1].startswith("Diagnosis\n\n")


# The facts about the machine and the code that a run records.


def test_an_installed_copy_has_no_commit_of_the_repository_around_it(tmp_path, monkeypatch):
    """The report named the commit of the user's own project as ours."""
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "theirs"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True)
    package = tmp_path / ".venv" / "transformer_mt"
    package.mkdir(parents=True)
    copy = shutil.copy(module.__file__, package)
    monkeypatch.setattr(module, "__file__", str(copy))
    assert module.environment(CPU)["commit"] is None
    subprocess.run([*git, "add", Path(copy).relative_to(tmp_path)], cwd=tmp_path, check=True)
    assert module.environment(CPU)["commit"]


def test_a_training_on_the_cpu_names_no_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "NVIDIA H100")
    assert module.environment(CPU)["gpu"] is None
    assert module.environment(torch.device("cuda"))["gpu"] == "NVIDIA H100"
