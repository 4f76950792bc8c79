"""The tutorial's commands run as they stand there, on small files."""

import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from transformer_mt.corpora import toy

TEXT = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
# The sizes are made smaller, the rest stays: a test has seconds.
SMALLER = {"--quantization int8": "--quantization float32"}
SMALLER_CONFIG = {
    r"d_model: .*": "d_model: 32, d_ff: 64, num_heads: 2, num_encoder_layers: 1, num_decoder_layers: 1}",
    r"max_updates: \d+": "max_updates: 20",
    r"batch_tokens: \d+": "batch_tokens: 1024",
    r"vocab_size: \d+": "vocab_size: 450",
}


@pytest.fixture
def folder(tmp_path):
    """The user's two files."""
    pairs = list(toy.generate("train", 1400))
    for name, column in (("all.en", 0), ("all.de", 1)):
        (tmp_path / name).write_text("".join(pair[column] + "\n" for pair in pairs), encoding="utf-8")
    return tmp_path


@pytest.mark.long
def test_the_tutorial(folder, tiny_run):
    for name, verb in (("transformer-mt", ""), ("translate", "translate")):
        script = folder / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m transformer_mt {verb} "$@"\n', encoding="utf-8"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    run_tutorial(folder, {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}, tiny_run)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_the_tutorial_with_an_installed_package(folder, tiny_run, tmp_path_factory, kind):
    """The environment has nothing but the package and its dependencies."""
    built, quiet = tmp_path_factory.mktemp("built"), {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([sys.executable, "-m", "build", "--outdir", built / "dist", ROOT], **quiet)
    (package,) = (built / "dist").glob(kind)
    subprocess.run([sys.executable, "-m", "venv", built / "venv"], **quiet)
    install = [built / "venv/bin/pip", "install", "-c", ROOT / "constraints.txt"]
    subprocess.run([*install, f"{package}[plot,ctranslate2]"], **quiet)
    environment = {**os.environ, "PATH": f"{built / 'venv/bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    run_tutorial(folder, environment, tiny_run)


def run_tutorial(folder, environment, tiny_run):
    text = TEXT
    for size, small in SMALLER.items():
        assert size in text
        text = text.replace(size, small)
    shown = []
    for block in re.findall(r"```bash\n(.*?)```", text, re.DOTALL):
        if "mine-ct2" in block:
            pytest.importorskip("ctranslate2")
            # After so few updates most scores are ties, and an export cannot be proven: take another run.
            shutil.rmtree(folder / "runs/mine")
            shutil.copytree(tiny_run, folder / "runs/mine")
        done = subprocess.run(
            ["bash", "-ec", block], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
        shown.append(done.stdout)
        if "transformer-mt new" in block:
            assert "training will take about" in done.stderr
            config = folder / "mine.yaml"
            written = config.read_text(encoding="utf-8")
            for size, small in SMALLER_CONFIG.items():
                assert re.search(size, written)
                written = re.sub(size, small, written)
            config.write_text(written, encoding="utf-8")
    assert (folder / "some.out").read_text(encoding="utf-8").count("\n") == 100
    assert "Good enough" in "".join(shown)
    assert "BLEU" in "".join(shown) and (folder / "mine-ct2/model.bin").exists()
