"""The README's commands run as they stand there."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from transformer_mt.config.load import load_config
from transformer_mt.corpora import toy

README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language, after):
    return re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)[1]


@pytest.fixture
def checkout(tmp_path, tiny_run):
    """A folder with the Makefile and configs, a .venv that is this interpreter, and small data in the hub's
    layout.
    """
    for name in ("Makefile", "constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    shutil.copytree(tiny_run, tmp_path / "runs/demo")
    binaries = tmp_path / ".venv/bin"
    binaries.mkdir(parents=True)
    for name, verb in (("transformer-mt", ""), ("translate", "translate")):
        script = binaries / name
        script.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -m transformer_mt {verb} "$@"\n', encoding="utf-8"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / ".venv/ready").touch()
    (tmp_path / "hub").mkdir()
    for split, size in (("train", 800), ("val", 20), ("test", 20)):
        rows = toy.generate({"val": "valid"}.get(split, split), size)
        lines = (json.dumps({"en": en, "de": de}) + "\n" for en, de in rows)
        (tmp_path / f"hub/{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "input.txt").write_text("A man is sleeping.\n\nTwo dogs.\n", encoding="utf-8")
    return tmp_path


def shell(command, folder, **env):
    # As typed by a person: not as a part of the `make test` that may run this.
    outer = {
        key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"
    }
    environment = {**outer, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(
        ["sh", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=900
    )


def test_the_five_commands(checkout):
    commands = block("bash", "## From nothing").strip().split("\n")
    assert len(commands) == 5 and commands[0].startswith("make demo")
    tiny = "data.hub=hub tokenizer.vocab_size=450 model.d_model=32 model.d_ff=64 train.max_updates=3"
    tiny += " train.batch_tokens=600"
    for command in commands[1:]:  # `make demo` has its own, slow, test
        result = shell(command, checkout, ARGS=tiny)
        assert result.returncode == 0, f"{command}\n{result.stderr}"
    assert (checkout / "output.txt").read_text(encoding="utf-8").count("\n") == 3


def test_the_yaml_and_the_other_commands(checkout):
    config = checkout / "mine.yaml"
    config.write_text(block("yaml", "## YAML"), encoding="utf-8")
    assert load_config(config).data.train.source == "train.en"
    assert "`transformer-mt config show FILE`" in README
    result = shell(".venv/bin/transformer-mt config show configs/demo.yaml", checkout)
    assert result.returncode == 0 and "max_updates" in result.stdout


@pytest.mark.long
def test_the_commands_for_ones_own_files(checkout):
    pairs = list(toy.generate("train", 1400))
    for name, side in (("all.en", 0), ("all.de", 1)):
        (checkout / name).write_text("".join(pair[side] + "\n" for pair in pairs), encoding="utf-8")
    new, inspect, train = block("bash", "With your own files").strip().split("\n")
    path = {"PATH": f"{checkout / '.venv/bin'}:{os.environ['PATH']}"}
    done = shell(new, checkout, **path)
    assert done.returncode == 0 and "training will take about" in done.stderr, done.stderr
    assert "Good enough" in shell(inspect, checkout, **path).stdout
    tiny = (
        " tokenizer.vocab_size=450 model.d_model=32 model.d_ff=64 train.max_updates=3 train.batch_tokens=600"
    )
    done = shell(train + tiny, checkout, **path)
    assert done.returncode == 0, done.stderr
    assert (checkout / "runs/mine/model.safetensors").exists()


def test_the_python(checkout):
    code = block("python", "From Python")
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr


def test_make_help_translate_and_evaluate(checkout):
    assert "make demo" in shell("make help", checkout).stdout
    assert shell("make translate TEXT='The dog sleeps.'", checkout).stdout.count("\n") == 1
    assert shell("make translate < input.txt", checkout).stdout.count("\n") == 3
    assert "BLEU" in shell("make evaluate", checkout).stdout


def test_a_config_given_as_a_make_target_is_refused(checkout):
    result = shell("make train configs/demo.yaml || exit 7", checkout)
    assert result.returncode == 7
    assert "a config must be given as CONFIG=configs/demo.yaml" in result.stderr


def test_every_make_target_and_verb_named_in_the_readme_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.slow
def test_make_demo(checkout):
    shutil.rmtree(checkout / "runs")
    result = shell("make demo", checkout)
    assert result.returncode == 0, result.stderr
    assert float(re.search(r"BLEU (\d+\.\d+)", result.stdout)[1]) >= 90
    assert "Der alte Lehrer sieht einen kleinen Vogel im Garten." in result.stdout
