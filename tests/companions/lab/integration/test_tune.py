"""`transformer-mt tune` with tiny trainings: a study from its first trial to its page."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from transformer_mt import load_config
from transformer_mt.run_folder import RunFolder

optuna = pytest.importorskip("optuna", reason="optuna is not installed")
SHORT = {"max_updates": 18, "validate_every": 18, "save_every": 18, "warmup": 4, "validate_sentences": 8}
KEYS = ["train.learning_rate", "train.weight_decay"]


def study_of(folder):
    backend = optuna.storages.journal.JournalFileBackend(str(folder / "study.journal"))
    return optuna.load_study(study_name="tune", storage=optuna.storages.JournalStorage(backend))


@pytest.fixture
def config(write_config):
    return write_config(train=SHORT)


def started(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "transformer_mt", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.long
def test_a_study_ends_with_a_config_that_trains_the_winner_again(config, tmp_path, cli):
    out = tmp_path / "study"
    words = ["tune", config, "--keys", *KEYS, "--out", out]
    assert cli(*words, "--trials", 4).status == 0
    trials = study_of(out).trials
    assert len(trials) == 4 and trials[0].user_attrs["settings"] == {}
    updates = [RunFolder(out / "trial-000" / f"{n}-of-9").config().train.max_updates for n in (1, 3, 9)]
    assert updates == [2, 6, 18]
    assert not list(out.rglob("test-*.jsonl"))  # no test set was translated
    page = (out / "tune.md").read_text(encoding="utf-8")
    assert "`train.weight_decay`" in page and (out / "tune.png").read_bytes().startswith(b"\x89PNG")
    winner = study_of(out).best_trial
    if winner.number == 0:
        assert page.count("No trial is better than the config") == 1 and not (out / "tuned.yaml").exists()
        return
    tuned = load_config(out / "tuned.yaml")
    assert tuned.train.weight_decay == winner.user_attrs["settings"]["train.weight_decay"]
    assert tuned.train.max_updates == 18 and tuned.name.endswith("-tuned")
    assert "3 seeds; p = " in page


@pytest.mark.long
def test_a_study_that_was_stopped_goes_on(config, tmp_path, cli):
    words = ["tune", config, "train.max_updates=180", "--keys", *KEYS, "--out", tmp_path / "study"]
    process = started(*words, "--trials", 1)
    log = tmp_path / "study" / "trial-000" / "3-of-9" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not log.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM and b"Traceback" not in err
    assert "the study is kept; run the same command to go on" in err.decode()
    first = (tmp_path / "study" / "trial-000" / "1-of-9" / "model.safetensors").stat().st_mtime_ns

    result = cli(*words, "--trials", 1)
    assert result.status == 0, result.err
    assert (tmp_path / "study" / "trial-000" / "1-of-9" / "model.safetensors").stat().st_mtime_ns == first
    (trial,) = study_of(tmp_path / "study").trials
    assert trial.state.name == "COMPLETE" and list(trial.intermediate_values) == [1, 3, 9]


@pytest.mark.long
def test_two_processes_work_on_one_study_and_a_trial_that_fails_is_counted(config, tmp_path):
    """Batches below data.max_length are refused: such trials fail."""
    settings = ["data.max_length=4000", "train.batch_tokens=4096", "--keys", "train.batch_tokens"]
    words = ["tune", config, *settings, "--out", tmp_path / "study", "--trials", 6]
    processes = [started(*words) for _ in range(2)]
    errors = [process.communicate(timeout=500)[1].decode() for process in processes]
    assert 0 in [process.returncode for process in processes], errors
    assert not any("Traceback" in error for error in errors)
    page = (tmp_path / "study" / "tune.md").read_text(encoding="utf-8")
    trials = study_of(tmp_path / "study").trials
    assert 6 <= len(trials) <= 7 and all(trial.state.is_finished() for trial in trials)
    failed = [trial for trial in trials if trial.number and trial.params["train.batch_tokens"] < 4000]
    assert page.count("| failed ") == len(failed)


@pytest.mark.long
def test_a_wider_model_gets_fewer_updates(config, tmp_path, cli):
    """So that all trials take the same time."""
    out = tmp_path / "study"
    cli("tune", config, "train.max_updates=90", "--keys", "model.d_model", "--out", out, "--trials", 3)
    wide = [trial for trial in study_of(out).trials[1:] if trial.intermediate_values]
    assert wide
    for trial in wide:
        run = RunFolder(out / f"trial-{trial.number:03}" / "1-of-9").config()
        assert run.model.d_model == trial.params["model.d_model"] and run.model.d_ff > run.model.d_model
        assert run.train.max_updates < 10 or run.model.d_model < 256  # little wider: within the noise
    assert "model.d_model" in (out / "tune.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keys", "train.weight_decai"], "--keys must be among"),
        (["--keys", "train.batch_tokens", "train.batch_tokens=auto"], "train.batch_tokens must be a number"),
        (["--keys", "tokenizer.vocab_size", "train.monitor=loss"], "train.monitor must be a metric"),
        (["--hours", "0"], "must be a number of hours above 0, but is 0"),
        ([], "--hours or --trials must be given, or the search has no end"),
    ],
)
def test_what_cannot_be_tuned_is_said(words, message, config, tmp_path, cli):
    settings = [word for word in words if "=" in word]
    others = [word for word in words if "=" not in word]
    end = ["--trials", "1"] if words else []
    result = cli("tune", config, *settings, *end, "--out", tmp_path / "study", *others)
    assert result.status == 2 and message in result.err


def test_a_folder_holds_one_study(config, tmp_path, cli):
    words = ["tune", config, "--out", tmp_path / "study", "--trials", 1, "--keys"]
    assert cli(*words, *KEYS).status == 0
    result = cli(*words, "model.dropout")
    assert result.status == 2 and "is the study of another config or of other keys" in result.err


def test_without_optuna_the_extra_is_named(config, cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = cli("tune", config, "--trials", "1")
    assert result.status == 2 and "pip install 'transformer-mt[tune]'" in result.err


def test_ranges_are_within_what_the_keys_accept(write_config):
    from transformer_mt.config import Config
    from transformer_mt.config.error_sentences import searched_keys
    from transformer_mt.config.load import as_overrides

    config, page = write_config(data={"max_length": 64}), (ROOT / "docs" / "how_to" / "tune.md").read_text()
    for key, searched in searched_keys(Config).items():
        for value in (searched.low, searched.high):
            load_config(config, as_overrides({key: value}))
        limits = [searched.low, searched.high]
        named = [f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in limits]
        assert f"| `{key}` | {' to '.join(named)}" in page
