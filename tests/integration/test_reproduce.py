"""A config's receipt, measured again."""

import os
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


def test_a_receipt_is_written_compared_and_missed(write_config, tmp_path):
    path = write_config(train={"max_updates": 12})
    first = reproduce(tmp_path, path.name)
    assert first.returncode == 0, first.stderr
    assert "has no receipt yet" in first.stderr and "was trained before" not in first.stderr
    receipt = first.stdout[first.stdout.index("# receipt:") :].strip() + "\n"
    path.write_text(receipt + path.read_text(encoding="utf-8"), encoding="utf-8")
    again = reproduce(tmp_path, path.name, "--out", "again")
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip().endswith("reproduced: BLEU +0.00 from the receipt")
    bleu = yaml.safe_load(receipt.replace("# ", ""))["receipt"]["bleu"]
    path.write_text(path.read_text(encoding="utf-8").replace(f"bleu: {bleu}", f"bleu: {bleu + 50}"), encoding="utf-8")
    missed = reproduce(tmp_path, path.name, "--out", "again")
    assert "again: was trained before; that run is compared, --out DIR trains another" in missed.stderr
    assert missed.returncode == 1
    assert "NOT reproduced: BLEU -50.00" in missed.stdout


def test_a_wrong_file_is_told_in_one_line(tmp_path):
    result = reproduce(tmp_path, "nothing.yaml")
    assert result.returncode == 2
    assert result.stderr.strip() == "nothing.yaml: No such file or directory"


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_shipped_receipts_are_whole(path):
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from reproduce import receipt_of
    finally:
        sys.path.pop(0)
    receipt = receipt_of(path)
    assert list(receipt) in (KEYS, []), "either all facts, or nobody has trained it yet"
    assert ("# receipt:" in path.read_text(encoding="utf-8")) is bool(receipt)
