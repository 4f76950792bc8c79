"""The gradient and the change of each layer."""

import pytest
import torch

from tests.helpers.updates import CPU, batch_of, pairs, tiny_model
from transformer_mt.config import TrainConfig
from transformer_mt.files import read_objects
from transformer_mt.ranks import Ranks
from transformer_mt.update.loss import CrossEntropy
from transformer_mt.update.optimizer import build_optimizer
from transformer_mt.update.step import Objective, Updater


def test_gradients_and_changes_are_those_of_each_layers_weights():
    model = tiny_model(num_encoder_layers=2)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    loss, _ = Objective(model, CrossEntropy(0.1))(batch_of(pairs(9)))
    (loss / batch_of(pairs(9)).num_tokens).backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    optimizer = build_optimizer(model, TrainConfig())
    run = Updater(
        Objective(model, CrossEntropy(0.1)),
        optimizer,
        CPU,
        torch.float32,
        0.01,
        Ranks(),
        measures_layers=True,
    )
    layers = run.update([batch_of(pairs(9))], 0.01, by_layer=True).result().layers
    assert set(layers) == {"src_embedding", "encoder.0", "encoder.1", "encoder", "decoder.0", "decoder"}
    for layer, (gradient, change) in layers.items():
        start = f"{layer[:-2]}.layers.{layer[-1]}." if layer[-1].isdigit() else f"{layer}."
        inside = [
            name for name in before
            if name.startswith(start) and (layer[-1].isdigit() or ".layers." not in name)
        ]  # fmt: skip
        lengths = [
            torch.cat([tensor(name).flatten() for name in inside]).norm().item()
            for tensor in (
                gradients.__getitem__,
                lambda name: model.get_parameter(name) - before[name],
                before.__getitem__,
            )
        ]
        assert inside and gradient == pytest.approx(lengths[0], rel=1e-4)
        assert change == pytest.approx(lengths[1] / lengths[2], rel=1e-4)
    assert run.update([batch_of(pairs(9))], 0.01).result().layers is None


def test_a_run_logs_them_when_asked(write_config, tmp_path, cli):
    for asked in (False, True):
        config = write_config(train={"max_updates": 4, "log_every": 2, "log_gradients": asked})
        status, _, err = cli("train", config, "--out", tmp_path / str(asked))
        assert status == 0, err
    entries = [
        [entry for entry in read_objects(tmp_path / name / "metrics.jsonl") if entry["event"] == "train"]
        for name in ("False", "True")
    ]
    for plain, logged in zip(*entries):
        assert "change_by_layer" not in plain and plain["loss"] == logged["loss"]
        squares = sum(value**2 for value in logged["grad_norm_by_layer"].values())
        assert squares**0.5 > 0 and min(logged["change_by_layer"].values()) > 0
