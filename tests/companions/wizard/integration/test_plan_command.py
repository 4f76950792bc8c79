"""`transformer-mt train CONFIG --plan`."""

import pytest

from transformer_mt.cli import main

DATA = {"train": {"toy": "train", "size": 400}}


def planned(capfd, *words):
    status = main([str(word) for word in ("train", *words)])
    out, err = capfd.readouterr()
    return status, out, err


@pytest.fixture
def path(write_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return write_config(data=DATA)


def test_a_plan_for_this_machine_is_measured_and_trains_nothing(path, tmp_path, capfd):
    status, out, err = planned(capfd, path, "--plan", "train.max_updates=500")
    assert status == 0 and "measuring this machine" in err
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert list(rows) == ["parameters", "epoch", "update", "training", "memory", "time"]
    assert "393 pairs" in rows["epoch"] and "500 updates" in rows["training"]
    assert "s an update, measured; without validations" in rows["time"]  # and what other programs use
    assert not (tmp_path / "runs").exists()


def test_a_plan_of_packed_batches_is_one(path, capfd):
    status, out, _ = planned(capfd, path, "--plan", "train.packed=true", "train.batch_tokens=1024")
    assert status == 0 and "target tokens; packed, " in out


@pytest.mark.parametrize(
    "words, message",
    [
        (["--plan", "train.max_update=3"], "did you mean `train.max_updates`?"),
        (["--plan", "--gpus", "2"], "--plan must run in one process; leave out --gpus and torchrun"),
    ],
)
def test_mistakes_are_one_line(path, capfd, words, message):
    status, out, err = planned(capfd, path, *words)
    assert status == 2 and out == ""
    assert message in err.splitlines()[-1]
