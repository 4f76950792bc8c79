"""A training that learns nothing any more ends, says why, and leaves the best model before."""

import math

import pytest

from transformer_mt.api import train
from transformer_mt.config import load_config
from transformer_mt.errors import WorkError
from transformer_mt.files import read_objects
from transformer_mt.training import divergence

pytestmark = pytest.mark.usefixtures("no_pictures")


def diverged(write_config, tmp_path, **keys):
    """The message of a training that diverges, and its validations."""
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 40, "validate_every": 4, "log_every": 2, "warmup": 1, **keys}
    with pytest.raises(WorkError) as error:
        train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    entries = read_objects(tmp_path / "run" / "metrics.jsonl")
    return str(error.value), [entry for entry in entries if entry["event"] == "valid"]


def test_a_loss_out_of_all_bounds_ends_it(write_config, tmp_path):
    message, validations = diverged(write_config, tmp_path, learning_rate=100.0)
    assert "the training has diverged: at update" in message and "lower train.learning_rate (100)" in message
    assert "start over with" in message
    assert not any(entry["is_best"] for entry in validations if entry["loss"] > 4 * math.log(400))


def test_validations_worse_than_a_guess_end_it_unless_the_model_overfits(write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(divergence, "_uniform", lambda run: 3.0)
    monkeypatch.setattr(divergence, "_WORSE", 0.5)
    message, validations = diverged(write_config, tmp_path, learning_rate=0.001, log_every=50)
    assert len(validations) == 3 and "the validation loss is" in message


def test_a_model_that_overfits_goes_on(write_config, tmp_path, monkeypatch):
    from transformer_mt.training.state.progress import Progress

    monkeypatch.setattr(divergence, "_uniform", lambda run: 3.0)
    count = Progress.count

    def learnt(self, result):
        count(self, result)
        self.train_nll = 0.1

    monkeypatch.setattr(Progress, "count", learnt)
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 16, "validate_every": 4, "warmup": 1}
    assert train(load_config(write_config(data=data, train=settings)), tmp_path / "run").exists()


def test_a_model_that_does_not_learn_has_not_diverged(write_config, tmp_path, monkeypatch):
    monkeypatch.setattr(divergence, "_uniform", lambda run: 3.0)
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 16, "validate_every": 4, "warmup": 1, "learning_rate": 1e-12}
    assert train(load_config(write_config(data=data, train=settings)), tmp_path / "run").exists()
