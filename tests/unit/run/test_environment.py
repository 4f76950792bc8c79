"""The facts about the machine and the code that a run records."""

import shutil
import subprocess
from pathlib import Path

import torch

from tests.helpers.updates import CPU
from transformer_mt.run import report as module


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
