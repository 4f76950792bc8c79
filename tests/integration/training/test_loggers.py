"""What a training records in TensorBoard and Weights & Biases, and that neither can stop it."""

import sys
import types
from importlib.machinery import ModuleSpec

import pytest

from transformer_mt.config import load_config
from transformer_mt.errors import InputError
from transformer_mt.files import read_objects
from transformer_mt.run import loggers
from transformer_mt.training import train

SHORT = {"max_updates": 12, "validate_every": 6, "save_every": 6, "average_checkpoints": 1}


@pytest.fixture
def run(write_config, tmp_path, monkeypatch):

    def run(*names, words=()):
        if "tensorboard" in names:
            pytest.importorskip("tensorboard")
        path = write_config(train={**SHORT, "loggers": list(names)})
        return train(load_config(path, list(words)), tmp_path / "run")

    return run


def shown(folder):
    """{name: {update: value}} as TensorBoard shows it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"))
    found.Reload()
    numbers = {n: {e.step: e.value for e in found.Scalars(n)} for n in found.Tags()["scalars"]}
    return numbers, found.Tags()["tensors"]


def test_tensorboard_shows_what_metrics_jsonl_holds(run):
    folder = run("tensorboard")
    numbers, texts = shown(folder)
    entries = read_objects(folder / "metrics.jsonl")
    for entry in entries:
        if entry["event"] == "train":
            for name in ("loss", "learning_rate", "grad_norm", "tokens_per_second", "memory_mb"):
                assert numbers[f"train/{name}"][entry["step"]] == pytest.approx(entry[name], rel=1e-5)
        elif entry["event"] == "valid":
            bleu, chrf = entry["scores"]
            assert numbers["valid/BLEU"][entry["step"]] == pytest.approx(bleu["value"], rel=1e-5)
            assert numbers["valid/chrF"][entry["step"]] == pytest.approx(chrf["value"], rel=1e-5)
            assert numbers["valid/loss"][entry["step"]] == pytest.approx(entry["loss"], rel=1e-5)
    assert 10 < numbers["train/memory_mb"][12] < 20_000
    assert "samples/text_summary" in texts


def test_a_resumed_training_shows_each_update_once(run):
    run("tensorboard", words=["train.max_updates=6"])
    folder = run("tensorboard")
    assert sorted(shown(folder)[0]["valid/loss"]) == [6, 12]


class FakeRun:
    def __init__(self):
        self.logged, self.finished, self.fails_at = [], 0, None

    def define_metric(self, *words, **options):
        pass

    def log(self, facts):
        if self.fails_at is not None and facts["update"] >= self.fails_at:
            raise OSError("the network is gone\nand more")
        self.logged.append(facts)

    def finish(self):
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the package, which keeps what it is given."""
    module = types.ModuleType("wandb")
    module.run, module.inits = FakeRun(), []
    module.Settings = dict
    module.Table = lambda columns, data: {"columns": columns, "data": data}

    def init(**words):
        module.inits.append(words)
        return module.run

    module.init = init
    module.__spec__ = ModuleSpec("wandb", None)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return module


def test_wandb_gets_numbers_samples_and_the_config(run, wandb):
    run("wandb")
    (first,) = wandb.inits
    assert first["name"] == "tiny" and first["config"]["train"]["max_updates"] == 12
    valid = [facts for facts in wandb.run.logged if "valid/BLEU" in facts]
    assert [facts["update"] for facts in valid] == [6, 12]
    assert valid[0]["samples"]["columns"] == ["source", "reference", "translation"]
    assert len(valid[0]["samples"]["data"]) == 3
    assert wandb.run.finished == 1
    run("wandb", words=["train.max_updates=18"])
    assert wandb.inits[1]["id"] == first["id"] and wandb.inits[1]["resume"] == "allow"


@pytest.mark.parametrize("at", ["start", "update"])
def test_a_logger_that_fails_never_stops_a_training(run, wandb, capsys, at):
    def init(**words):
        raise ValueError("the network is gone")

    wandb.run.fails_at = 6
    if at == "start":
        wandb.init = init
    folder = run("wandb", "tensorboard")
    assert (folder / "finished.json").exists() and (folder / "tensorboard").is_dir()
    assert capsys.readouterr().err.count("warning: wandb stopped recording: the network is gone\n") == 1
    assert len(read_objects(folder / "metrics.jsonl")) > 4


def test_wandb_itself_offline(run, monkeypatch, tmp_path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = run("wandb")
    (file,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content = file.read_bytes()
    assert b"valid/BLEU" in content and b"train/learning_rate" in content


def test_a_package_that_is_missing_is_said_before_any_work(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match=r"wandb needs its package: pip install 'transformer-mt\[wandb\]'"):
        run("wandb")
    assert not (tmp_path / "run").exists()


def test_numbers_that_are_none_are_left_out():
    entry = {"event": "train", "step": 1, "loss": float("nan"), "ppl": 2.0}
    assert loggers.scalars(entry) == {"train/ppl": 2.0}
    assert loggers.scalars({"event": "start", "step": 0}) == {}
