"""`transformer-mt sweep` for real: stopped in the middle, gone on with, finished, and asked again."""

import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from tests.conftest import ROOT, TINY


@pytest.mark.long
def test_a_sweep_goes_on_where_ctrl_c_stopped_it(tmp_path, cli):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY), encoding="utf-8")
    sweep = {
        "base": "tiny.yaml",
        "settings": {
            "train.max_updates": 120,
            "train.validate_every": 60,
            "train.save_every": 60,
            "decode.beam": 1,
        },
        "seeds": [1],
        "variants": {"scaled dot": None, "luong": {"model.kind": "recurrent", "train.max_updates": 10}},
    }
    (tmp_path / "which.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", "sweep", "which.yaml", "--jobs", "2"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    log = tmp_path / "runs" / "which" / "scaled_dot" / "seed-1" / "log.txt"
    deadline = time.monotonic() + 120
    while not (log.exists() and "update 4/" in log.read_text(encoding="utf-8")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"Traceback" not in err and out == b""
    assert err.decode().endswith("stopped; run the same command to resume\n")
    assert "and saved; run the same command" in log.read_text(encoding="utf-8")

    result = cli("sweep", "which.yaml", "--devices", "cpu,cpu", cwd=tmp_path)
    assert result.status == 0, result.err
    assert "resuming from" in log.read_text(encoding="utf-8")
    lines = result.out.split("\n")
    assert lines[2].startswith("| scaled dot |") and lines[3].startswith("| luong ")
    folder = tmp_path / "runs" / "which"
    assert (folder / "table.md").read_text(encoding="utf-8").startswith(result.out)

    again = cli("sweep", "which.yaml", cwd=tmp_path)
    assert again.out == result.out and again.err == ""  # nothing was left to do


@pytest.mark.long
def test_models_of_plain_text_are_compared_by_their_perplexity(tmp_path, cli):
    text = {"language": "en", "objective": "masked_lm"}
    data = {
        **TINY["data"],
        "train": {**TINY["data"]["train"], **text},
        "valid": {**TINY["data"]["valid"], **text},
        "test": [{**TINY["data"]["test"][0], **text}],
    }
    base = {**TINY, "data": data, "model": {**TINY["model"], "kind": "encoder"}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(base), encoding="utf-8")
    variants = {"two layers": {"model.num_encoder_layers": 2}, "one": None}
    sweep = {"base": "tiny.yaml", "settings": {"train.max_updates": 12}, "seeds": [1], "variants": variants}
    (tmp_path / "which.yaml").write_text(yaml.safe_dump(sweep, sort_keys=False), encoding="utf-8")
    result = cli("sweep", "which.yaml", cwd=tmp_path)
    assert result.status == 0, result.err
    assert "validation perplexity" in result.out and "| two layers |" in result.out
    assert cli("sweep", "which.yaml", cwd=tmp_path).err == ""  # nothing was left to do
