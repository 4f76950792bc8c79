"""A config's receipt, measured again."""

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests.conftest import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
KEYS = [
    "test",
    "bleu",
    "signature",
    "beam",
    "minutes",
    "tokens_per_second",
    "peak_mb",
    "machine",
    "commit",
    "seed",
    "settings",
]


def reproduce(folder, *words):
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts/reproduce.py"), *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.long
def test_a_receipt_is_written_compared_and_missed(write_config, tmp_path):
    path = write_config(train={"max_updates": 12})
    first = reproduce(tmp_path, path.name, "--reach", "0", "101")
    assert first.returncode == 0, first.stderr
    assert "has no receipt yet" in first.stderr and "was trained before" not in first.stderr
    receipt = first.stdout[first.stdout.index("# receipt:") :].strip() + "\n"
    path.write_text(receipt + path.read_text(encoding="utf-8"), encoding="utf-8")
    again = reproduce(tmp_path, path.name, "--out", "again")
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip().endswith("reproduced: BLEU +0.00 from the receipt")
    facts = yaml.safe_load(re.sub("^# ", "", receipt, flags=re.MULTILINE))["receipt"]
    assert 0 < facts["seconds_to"][0] < 60 * facts["minutes"] + 4 and facts["seconds_to"][101] is None
    path.write_text(path.read_text(encoding="utf-8").replace("101.0: null", "101.0: 9.5"), encoding="utf-8")
    slow = reproduce(tmp_path, path.name, "--out", "slow")
    assert slow.returncode == 1 and "NOT reproduced: validation BLEU below 101" in slow.stdout, slow.stderr
    path.write_text(path.read_text(encoding="utf-8").replace("101.0: 9.5", "101.0: null"), encoding="utf-8")
    bleu = facts["bleu"]
    path.write_text(
        path.read_text(encoding="utf-8").replace(f"bleu: {bleu}", f"bleu: {bleu + 50}"), encoding="utf-8"
    )
    missed = reproduce(tmp_path, path.name, "--out", "again")
    assert "again: was trained before; that run is compared, --out DIR trains another" in missed.stderr
    assert missed.returncode == 1
    assert "NOT reproduced: BLEU -50.00" in missed.stdout


def test_what_cannot_be_measured_is_told_in_one_line_before_any_training(write_config, monkeypatch, capsys):
    path = write_config()
    monkeypatch.syspath_prepend(ROOT / "scripts")
    from reproduce import main

    no_bleu = "must have data.test, on which a receipt's BLEU is measured, and BLEU among evaluate.metrics"
    for words, message in (
        (["nothing.yaml"], "nothing.yaml: No such file or directory"),
        (
            [path.name, "train.max_update=3"],
            "command line: `train.max_update` is not a key; did you mean `train.max_updates`?",
        ),
        ([path.name, "data.test=[]"], f"{path.name}: {no_bleu}"),
        ([path.name, "evaluate.metrics=[chrF]"], f"{path.name}: {no_bleu}"),
    ):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *words])
        assert main() == 2 and capsys.readouterr().err.strip().split("\n")[-1] == message


@pytest.mark.slow
def test_settings_of_the_receipt_are_set_again_under_those_of_the_command_line(write_config, tmp_path):
    path = write_config(train={"max_updates": 12})
    first = reproduce(tmp_path, path.name, "train.max_updates=4", "decode.beam=2")
    receipt = first.stdout[first.stdout.index("# receipt:") :].strip() + "\n"
    path.write_text(receipt + path.read_text(encoding="utf-8"), encoding="utf-8")
    again = reproduce(tmp_path, path.name, "train.max_updates=6", "--out", "again", "--tolerance", "100")
    assert again.returncode == 0, again.stderr
    config = yaml.safe_load((tmp_path / "again" / "config.yaml").read_text(encoding="utf-8"))
    assert config["train"]["max_updates"] == 6 and config["decode"]["beam"] == 2


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_receipts_are_whole(path):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from reproduce import receipt_of
    finally:
        sys.path.pop(0)
    receipt = receipt_of(path)
    assert [key for key in receipt if key != "seconds_to"] in (KEYS, []), (
        "either all facts, or nobody has trained it yet"
    )
    trained = ("demo", "multi30k_en_de", "multi30k_en_de_quick", "multi30k_en_de_tiny")
    assert receipt or path.stem not in trained, "these were trained"
    assert ("# receipt:" in path.read_text(encoding="utf-8")) is bool(receipt)
