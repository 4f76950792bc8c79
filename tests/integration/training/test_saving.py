"""When a training saves, and when it ends: by epochs, by minutes, by a signal."""

import io
import os
import signal
import sys

import pytest

from tests.helpers.faults import before_each_update, before_preparation, results_read_later, validations
from transformer_mt.checkpoint import load
from transformer_mt.config import TrainConfig, load_config
from transformer_mt.errors import InputError
from transformer_mt.files import read_objects
from transformer_mt.messages import say
from transformer_mt.run.progress import Progress
from transformer_mt.run.run import Averaging
from transformer_mt.training import train
from transformer_mt.update.schedule import learning_rate


@pytest.fixture
def config(write_config):
    """Trained for 12 updates, saved at 6 and 12."""
    data = {"train": {"toy": "train", "size": 150}}
    return load_config(write_config(data=data, train={"max_updates": 12, "average_checkpoints": 1}))


def changed(config, **train_keys):
    return config.model_copy(update={"train": config.train.model_copy(update=train_keys)})


def saved_at(run):
    """The updates of a run's checkpoints."""
    return sorted(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())


def test_sigusr1_saves_and_the_training_goes_on_as_if_nothing_was(config, tmp_path):
    whole = train(config, tmp_path / "whole")
    before = signal.getsignal(signal.SIGUSR1)
    with before_each_update(lambda number, *_: number == 5 and os.kill(os.getpid(), signal.SIGUSR1)):
        asked = train(changed(config, keep_checkpoints=20), tmp_path / "asked")
    assert signal.getsignal(signal.SIGUSR1) == before
    assert saved_at(asked) == [5, 6, 12]
    assert (asked / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_checkpoint_older_than_the_minutes_is_replaced(config, tmp_path):
    often = train(changed(config, save_minutes=1e-9, keep_checkpoints=20), tmp_path / "often")
    assert saved_at(often) == list(range(1, 13))
    seldom = train(changed(config, save_minutes=60.0, keep_checkpoints=20), tmp_path / "seldom")
    assert saved_at(seldom) == [6, 12]
    assert (often / "model.safetensors").read_bytes() == (seldom / "model.safetensors").read_bytes()


def test_a_resumed_training_says_where_its_learning_rate_jumps(config, tmp_path, capfd):
    keys = {"max_updates": 12, "schedule": "cosine", "warmup": 2}
    folder = train(changed(config, **keys), tmp_path / "run")
    capfd.readouterr()
    train(changed(config, **{**keys, "max_updates": 24}), folder)
    rates = [learning_rate(12, changed(config, **{**keys, "max_updates": n}).train) for n in (24, 12)]
    said = capfd.readouterr().err
    assert f"goes on at {rates[0]:.2e}, not at {rates[1]:.2e}: its schedule has changed" in said
    train(changed(config, **{**keys, "max_updates": 24, "log_every": 3}), folder)
    assert "learning rate goes on" not in capfd.readouterr().err


@pytest.mark.parametrize("keys", [{}, {"update_tokens": 1500}], ids=str)
def test_a_training_ends_after_its_epochs(config, tmp_path, keys):
    short = changed(config, max_epochs=2.0, max_updates=1000, log_every=1, schedule="cosine", **keys)
    folder = train(short, tmp_path / "run")
    entries = [entry for entry in read_objects(folder / "metrics.jsonl") if entry["event"] == "train"]
    per_epoch = entries[-1]["step"] / entries[-1]["epoch"]
    assert entries[-1]["epoch"] == pytest.approx(2.0, abs=1.01 / per_epoch)
    assert load_config(folder / "config.yaml").train.max_updates == entries[-1]["step"]
    assert entries[-1]["learning_rate"] < entries[len(entries) // 2]["learning_rate"] / 3, (
        "the schedule ends there"
    )
    train(short, folder)  # finished: nothing to do
    assert [e for e in read_objects(folder / "metrics.jsonl") if e["event"] == "train"] == entries
    longer = train(changed(short, max_epochs=3.0), folder)
    assert read_objects(longer / "metrics.jsonl")[-1]["step"] > entries[-1]["step"]


def test_epochs_are_counted_right_when_the_size_of_updates_changes(config, tmp_path):
    """They were counted as if all updates had had the new size: the training ended at half its epochs."""
    from tests.conftest import train_interrupted

    keys = {"max_epochs": 3.0, "max_updates": 1000, "log_every": 1}
    train_interrupted(changed(config, **keys, accumulate=1), tmp_path / "run", 6)
    train_interrupted(changed(config, **keys, accumulate=2), tmp_path / "run", 8)
    folder = train(changed(config, **keys, accumulate=2), tmp_path / "run")
    entries = [entry for entry in read_objects(folder / "metrics.jsonl") if entry["event"] == "train"]
    per_update = entries[-1]["epoch"] - entries[-2]["epoch"]
    assert entries[-1]["epoch"] == pytest.approx(3.0, abs=1.01 * per_update)


def test_more_updates_are_trained_when_they_ended_a_training_before_its_epochs(config, tmp_path, capsys):
    short = changed(config, max_epochs=50.0, max_updates=6)
    folder = train(short, tmp_path / "run")
    assert load_config(folder / "config.yaml").train.max_updates == 6
    train(short, folder)
    assert (
        "raise train.max_epochs (50), and train.max_updates if it is less, and run" in capsys.readouterr().err
    )
    train(changed(short, max_updates=8), folder)
    assert read_objects(folder / "metrics.jsonl")[-1]["step"] == 8


def test_a_checkpoint_by_minutes_counts_updates_that_were_not_read_yet(config, tmp_path):
    """As on a GPU, where losses are read every 20 updates."""
    with results_read_later():
        run = train(changed(config, save_minutes=1e-9, max_updates=4, keep_checkpoints=20), tmp_path / "run")
    folders = sorted((run / "checkpoints").iterdir())
    first, second, third, last = (load(folder).state["progress"]["tokens"] for folder in folders)
    assert 0 < first < second < third < last


def test_a_training_by_epochs_killed_on_the_way_and_before_the_average_ends_the_same(config, tmp_path):
    """Its last checkpoint, which no `save_every` asked for, was left out of the average."""
    from tests.conftest import train_interrupted

    short = changed(config, max_epochs=2.0, max_updates=1000, average_checkpoints=3, average="last")
    whole = train(short, tmp_path / "whole")
    last = read_objects(whole / "metrics.jsonl")[-1]["step"]
    assert last % config.train.save_every

    def killed(validate, model, *rest):
        if (tmp_path / "cut" / "checkpoints" / f"step-{last:08d}").exists():
            sys.exit("killed")
        return validate(model, *rest)

    train_interrupted(short, tmp_path / "cut", 8)
    with validations(killed), pytest.raises(SystemExit, match="killed"):
        train(short, tmp_path / "cut")
    cut = train(short, tmp_path / "cut")
    averages = [
        [entry["steps"] for entry in read_objects(run / "metrics.jsonl") if entry["event"] == "average"]
        for run in (whole, cut)
    ]
    assert averages[0] == averages[1] and last in averages[0][0]
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_damaged_model_is_replaced_by_the_next_that_is_published(config, tmp_path, capsys):
    """The training ended at it, time after time, with the advice to free some space."""
    from tests.conftest import train_interrupted

    whole = train(config, tmp_path / "whole")
    train_interrupted(config, tmp_path / "cut", 8)
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"half")
    cut = train(config, tmp_path / "cut")
    assert "model.safetensors is damaged" in capsys.readouterr().err
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_scores_under_other_limits_of_the_search_are_not_compared(config, tmp_path, capsys):
    of_one_piece = {"decode": config.decode.model_copy(update={"max_length": 1})}
    folder = train(config.model_copy(update=of_one_piece), tmp_path / "run")
    train(changed(config, max_updates=18), folder)
    said = capsys.readouterr().err
    assert "scores before and after a change of decode.max_length are not comparable" in said
    report = " ".join((folder / "report.md").read_text(encoding="utf-8").split())
    changes = next(row for row in report.split(" | | ") if row.startswith("changed at update "))
    assert "train.max_updates" in changes and "decode.max_length" in changes


def test_what_another_process_trained_while_data_were_prepared_is_not_trained_over(config, tmp_path):
    other = tmp_path / "run" / "checkpoints" / "step-00000006"
    with (
        before_preparation(lambda: other.mkdir(parents=True)),
        pytest.raises(InputError, match="another process trained in it meanwhile; run the same command"),
    ):
        train(config, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir() if path.is_file()] in ([], [".lock"])


def failing(*_):
    raise RuntimeError("not today")


def test_what_fails_in_a_validation_loses_no_update(config, tmp_path):
    """Memory may be too little to translate at the first validation, which is due before the checkpoint."""
    with validations(failing), pytest.raises(RuntimeError, match="not today"):
        train(changed(config, validate_every=6, save_every=6), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000006"]


def test_a_parent_that_could_not_be_validated_is_validated_by_the_next_attempt(config, tiny_run, tmp_path):
    child = config.model_copy(update={"init_from": str(tiny_run)})
    with validations(failing), pytest.raises(RuntimeError, match="not today"):
        train(child, tmp_path / "run")
    log = read_objects(train(child, tmp_path / "run") / "metrics.jsonl")
    assert next(entry["step"] for entry in log if entry["event"] == "valid") == 0


def test_a_training_that_torchrun_starts_again_is_fresh_only_once(config, tmp_path, monkeypatch):
    """The command is the same each time; --fresh would move aside what the first attempt trained."""
    train(changed(config, max_updates=6), tmp_path / "run")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    train(config, tmp_path / "run", fresh=True)
    assert not list(tmp_path.glob("run.old-*"))
    starts = [e["step"] for e in read_objects(tmp_path / "run" / "metrics.jsonl") if e["event"] == "start"]
    assert starts == [0, 6]


def test_a_change_of_the_scores_keeps_what_may_be_averaged(config, tmp_path):
    best = changed(config, average="best", average_checkpoints=2, validate_every=3, save_every=3)
    folder = train(best, tmp_path / "run")
    kept = sorted(path.name for path in (folder / "averaging").iterdir())
    assert len(kept) == 2
    lowercase = best.evaluate.model_copy(update={"lowercase": True})
    train(best.model_copy(update={"evaluate": lowercase}), folder)
    assert sorted(path.name for path in (folder / "averaging").iterdir()) == kept


def test_the_best_checkpoint_is_among_those_that_are_averaged(tmp_path):
    """The loss decides which of nearly equal scores is the best."""
    progress = Progress()
    for step, score, loss in ((1, 30.05, 2.3), (2, 30.04, 2.2), (3, 30.0, 2.0)):
        progress.step = step
        progress.validated(score, loss)
        (tmp_path / f"step-{step:08d}.safetensors").touch()
    settings = TrainConfig(average="best", average_checkpoints=2, save_every=1)
    assert progress.best_step == 3 and 3 in Averaging(tmp_path, settings).steps(progress)


def test_messages_that_nobody_reads_end_no_training(monkeypatch):
    """The terminal was closed, or `tee` was stopped by the same Ctrl-C: there is a training to save."""

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Closed())
    say("stopping and saving")
    say("saved")
    assert sys.stderr.name == os.devnull
