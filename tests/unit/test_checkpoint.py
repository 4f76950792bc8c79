import json
import os
import shutil

import pytest
import torch

from transformer_mt import checkpoint
from transformer_mt.checkpoint import CheckpointError
from transformer_mt.update.sharding import full_weights


def save(root, step, value=1.0):
    return checkpoint.save(
        root, step, {"model": {"w": torch.full((3,), value)}, "rng": {"cpu": torch.arange(4)}}, {"step": step}
    )


def test_what_is_saved_is_loaded_and_no_file_is_a_pickle(tmp_path):
    assert checkpoint.newest(tmp_path / "none") is None
    path = save(tmp_path, 7)
    assert path.name == "step-00000007"
    files = {"model.safetensors", "rng.safetensors", "state.json", "manifest.json"}
    assert {file.name for file in path.iterdir()} == files
    loaded = checkpoint.load(path)
    assert loaded.state == {"step": 7}
    assert torch.equal(loaded.tensors["model"]["w"], torch.ones(3))
    assert torch.equal(loaded.tensors["rng"]["cpu"], torch.arange(4))


@pytest.mark.parametrize(
    "file, harm",
    [
        ("model.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])),
        ("model.safetensors", None),
        ("state.json", lambda content: b"{"),
        ("manifest.json", None),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_one_before_taken(tmp_path, file, harm, said):
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    if harm:
        path.write_bytes(harm(path.read_bytes()))
    else:
        path.unlink()
    assert checkpoint.newest(tmp_path).state == {"step": 1}
    (report,) = said
    told = ("step-00000002", "is damaged", "taking the checkpoint before it")
    assert all(words in report for words in told)


@pytest.mark.parametrize("moment", range(8))
def test_a_write_that_fails_leaves_the_last_whole_checkpoint(tmp_path, monkeypatch, moment, said):
    """The disk is full at each write in turn: what was there stays, nothing half-written shows."""
    save(tmp_path, 1)
    flush, calls = os.fsync, []

    def full(file):
        calls.append(file)
        if len(calls) == moment + 1:
            raise OSError(28, "No space left on device")
        flush(file)

    monkeypatch.setattr(os, "fsync", full)
    try:
        save(tmp_path, 2)
    except CheckpointError as error:
        assert "No space left on device" in str(error)
    monkeypatch.setattr(os, "fsync", flush)
    whole = checkpoint.newest(tmp_path)
    assert whole.state["step"] in (1, 2) and not said
    if len(calls) <= moment:
        assert whole.state["step"] == 2  # no failure: there are fewer writes than moments
    save(tmp_path, 3)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_rotation_keeps_the_newest_and_the_best(tmp_path):
    for step in range(1, 7):
        save(tmp_path, step)
    checkpoint.rotate(tmp_path, keep=2, best=3)
    steps = [int(path.name.removeprefix("step-")) for path in checkpoint.all_checkpoints(tmp_path)]
    assert steps == [3, 5, 6]


def test_a_step_saved_again_replaces_the_damaged_one(tmp_path):
    path = save(tmp_path, 1)
    shutil.rmtree(path)
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps({"gone": "0"}), encoding="utf-8")
    save(tmp_path, 1, value=5.0)
    assert checkpoint.load(path).tensors["model"]["w"][0] == 5.0


def test_a_kill_while_a_step_is_saved_again_loses_nothing(tmp_path):
    path = save(tmp_path, 5)
    path.rename(tmp_path / f".{path.name}.old")
    (tmp_path / f".{path.name}.tmp").mkdir()
    assert checkpoint.newest(tmp_path).state == {"step": 5}
    save(tmp_path, 6)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-00000005", "step-00000006"]


def test_what_was_to_be_removed_does_not_come_back(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, step)
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda *_, **__: None)  # killed as it began
    checkpoint.rotate(tmp_path, keep=1, best=None)
    assert checkpoint.newest(tmp_path).path.name == "step-00000002"
    assert [path.name for path in checkpoint.all_checkpoints(tmp_path)] == ["step-00000002"]


def test_average_is_the_mean(tmp_path):
    for i, value in enumerate((1.0, 2.0, 6.0)):
        checkpoint.save_weights(
            tmp_path / f"{i}.safetensors", {"w": torch.full((2,), value), "b": torch.tensor([value, -value])}
        )
    mean = checkpoint.average(sorted(tmp_path.glob("*.safetensors")))
    assert mean["w"].tolist() == [3.0, 3.0] and mean["b"].tolist() == [3.0, -3.0]
    assert mean["w"].dtype == torch.float32


def test_averaging_different_models_is_refused(tmp_path):
    checkpoint.save_weights(tmp_path / "a.safetensors", {"w": torch.ones(2)})
    checkpoint.save_weights(tmp_path / "b.safetensors", {"v": torch.ones(2)})
    with pytest.raises(CheckpointError, match="does not hold the same weights"):
        checkpoint.average([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])


def test_weights_of_another_model_are_refused():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(
        CheckpointError, match=r"x does not fit the config: 1 weights have no counterpart, bias for one"
    ):
        checkpoint.load_model_weights(model, {"weight": torch.ones(2, 3)}, "x")
    with pytest.raises(CheckpointError, match=r"weight must have shape \(2, 3\), but has \(3, 2\)"):
        checkpoint.load_model_weights(model, {"weight": torch.ones(3, 2), "bias": torch.ones(2)}, "x")


def test_tied_weights_are_stored_once():
    model = torch.nn.ModuleDict({"a": torch.nn.Embedding(4, 3), "b": torch.nn.Linear(3, 4, bias=False)})
    model["b"].weight = model["a"].weight
    assert list(full_weights(model)) == ["a.weight"]


def test_damaged_checkpoints_are_not_counted_among_those_to_keep(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step)
    for step in (2, 3):
        (tmp_path / f"step-{step:08d}/model.safetensors").write_bytes(b"")
    assert checkpoint.newest(tmp_path).state == {"step": 1}
    save(tmp_path, 2)
    checkpoint.rotate(tmp_path, keep=1, best=None)
    assert [path.name for path in checkpoint.all_checkpoints(tmp_path)] == ["step-00000002"]
    assert (tmp_path / "damaged-step-00000003").is_dir()  # nothing was deleted


def test_no_whole_checkpoint_is_never_silently_a_fresh_start(tmp_path, said):
    (save(tmp_path, 1) / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        CheckpointError, match="all of its 1 checkpoints are damaged; start over with `fresh=True`"
    ):
        checkpoint.newest(tmp_path)
    assert len(said) == 1 and "the checkpoint before it" not in said[0]


def test_weights_may_be_read_by_whom_the_umask_lets(tmp_path):
    checkpoint.save_weights(tmp_path / "a.safetensors", {"w": torch.ones(2)})
    (tmp_path / "b").write_text("", encoding="utf-8")
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "b").stat().st_mode
