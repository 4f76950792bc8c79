"""A training that learns nothing any more ends, says why, and leaves the best model before."""

import math
from dataclasses import replace

import pytest

from tests.helpers.faults import validations
from transformer_mt.config import load_config
from transformer_mt.corpora import toy
from transformer_mt.errors import WorkError
from transformer_mt.files import read_objects
from transformer_mt.training import train


def diverged(write_config, tmp_path, **keys):
    """The message of a training that diverges, and its validations."""
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 40, "validate_every": 4, "log_every": 2, "warmup": 1, **keys}
    with pytest.raises(WorkError) as error:
        train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    entries = read_objects(tmp_path / "run" / "metrics.jsonl")
    return str(error.value), [entry for entry in entries if entry["event"] == "valid"]


def test_a_loss_out_of_all_bounds_ends_it(write_config, tmp_path):
    message, entries = diverged(write_config, tmp_path, learning_rate=100.0)
    assert "the training has diverged: at update" in message and "lower train.learning_rate (100)" in message
    assert "start over with" in message
    assert not any(entry["is_best"] for entry in entries if entry["loss"] > 4 * math.log(400))


def test_validations_worse_than_a_guess_end_it(write_config, tmp_path):
    """How bad a model becomes depends on the processor's arithmetic: here it is twice as bad as a guess."""

    def worse(validate, *words):
        result = validate(*words)
        return replace(result, deciding=replace(result.deciding, loss=2 * math.log(450)))

    with validations(worse):
        message, entries = diverged(write_config, tmp_path, learning_rate=1.1, log_every=50)
    assert len(entries) == 3 and "the validation loss is" in message


def test_a_model_that_overfits_goes_on(write_config, tmp_path):
    """Worse than a guess on the validation set, but not on what it is trained on."""
    pairs = list(toy.generate("train", 40))
    backwards = [(en, de[::-1]) for en, de in toy.generate("valid", 40)]
    for name, rows in (("train", pairs), ("valid", backwards)):
        lines = ["en\tde", *(f"{en}\t{de}" for en, de in rows)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    data = {"train": {"file": "train.tsv"}, "valid": {"file": "valid.tsv"}, "test": []}
    settings = {"max_updates": 120, "validate_every": 20, "warmup": 1, "learning_rate": 0.02}
    run = train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    losses = [entry["loss"] for entry in read_objects(run / "metrics.jsonl") if entry["event"] == "valid"]
    assert len(losses) == 6 and min(losses[3:]) > math.log(450)


def test_a_model_that_does_not_learn_has_not_diverged(write_config, tmp_path):
    """Before its first update a model of post-norm layers may be worse than a guess."""
    data = {"train": {"toy": "train", "size": 150}}
    settings = {"max_updates": 16, "validate_every": 4, "warmup": 1, "learning_rate": 1e-12}
    run = train(load_config(write_config(data=data, train=settings)), tmp_path / "run")
    losses = [entry["loss"] for entry in read_objects(run / "metrics.jsonl") if entry["event"] == "valid"]
    assert len(losses) == 4 and min(losses) > math.log(400)
