"""A run with `data.context`, from training to a translated text."""

import yaml

from tests.conftest import TINY
from transformer_mt.data.corpora import toy


def documents(data, split, size):
    return {**data[split], "size": size, "documents": True}


def test_a_run_reads_the_sentences_before(cli, tmp_path):
    data = TINY["data"]
    values = {
        **TINY,
        "data": {
            **data,
            "train": documents(data, "train", 1500),
            "valid": documents(data, "valid", 150),
            "test": [{**data["test"][0], "documents": True}],
            "context": {"sentences": 3},
        },
        # The confidence is fitted to fewer sentences than the set has.
        "train": {**TINY["train"], "validate_sentences": 110},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    run = tmp_path / "run"
    result = cli("train", tmp_path / "tiny.yaml", "--out", run)
    assert result.status == 0, result.err
    assert (run / "calibration.json").exists()
    assert "test-0" in cli("evaluate", run).out

    lines = [src for src, _ in toy.generate("test", 30)]
    lines[10] = ""
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    out = tmp_path / "out.txt"
    result = cli("translate", run, "-i", tmp_path / "in.txt", "-o", out)
    assert result.status == 0 and "nothing to translate" not in result.err
    whole = out.read_bytes()
    assert whole.count(b"\n") == 30 and whole.split(b"\n")[10] == b""
    single = "".join(cli("translate", run, *lines[:1]).out)
    assert whole.decode().startswith(single)
