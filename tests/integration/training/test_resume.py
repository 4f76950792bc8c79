"""A run that is killed at any moment and started again ends with the same weights, bit for bit."""

import errno
import importlib
import itertools
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from tests.conftest import TINY
from tests.helpers.command import WarmProcess, run_command
from tests.helpers.companions import needs
from transformer_mt import checkpoint


def kill_at(module: str, name: str, count: int, when: str) -> None:
    """In the process of the command: replace one function by one that kills the process at its `count`-th
    call.
    """
    owner = importlib.import_module(module)
    *path, name = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    original, calls = getattr(owner, name), itertools.count(1)

    def deadly(*args, **kwargs):
        call = next(calls)
        if call == count and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if call == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


MOMENTS = {
    "before the first checkpoint": ("transformer_mt.update.step", "Updater.update", 4, "before"),
    "in an update": ("transformer_mt.update.step", "Updater.update", 20, "before"),
    "writing a checkpoint, files half there": ("transformer_mt.checkpoint", "write_tensors", 8, "after"),
    "writing a checkpoint, before its name": ("transformer_mt.checkpoint", "_hash", 10, "after"),
    "between a checkpoint and the removal of old ones": ("transformer_mt.checkpoint", "rotate", 3, "before"),
    "between a checkpoint and its link for averaging": (
        "transformer_mt.run.run",
        "Averaging.keep",
        3,
        "before",
    ),
    "in a validation": ("transformer_mt.run.validation", "validate", 2, "before"),
    "writing the first model": ("transformer_mt.checkpoint", "save_weights", 1, "before"),
    "writing the model": ("transformer_mt.checkpoint", "save_weights", 2, "before"),
    "averaging at the end": ("transformer_mt.checkpoint", "average", 1, "before"),
}


def config_in(
    folder: Path, bpe_dropout: float = 0.0, data: dict | None = None, kind: str = "transformer", **train
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny.yaml"
    values = {
        **TINY,
        "data": {**TINY["data"], **(data or {})},
        "tokenizer": {**TINY["tokenizer"], "bpe_dropout": bpe_dropout},
        "model": {**TINY["model"], "dropout": 0.2, "kind": kind},
        "train": {**TINY["train"], "keep_checkpoints": 2, **train},
    }
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def train(folder: Path, *words: object, code: int = 0) -> str:
    result = run_command("train", "tiny.yaml", *words, cwd=folder)
    assert result.status == code, result.err
    assert "Traceback" not in result.err
    return result.err


def weights(folder: Path) -> dict:
    return {
        str(path.relative_to(folder)): {
            name: tensor.numpy().tobytes() for name, tensor in load_file(path).items()
        }
        for path in [
            folder / "runs/tiny/model.safetensors",
            *sorted((folder / "runs/tiny/checkpoints").glob("step-*/*.safetensors")),
        ]
    }


def measured(folder: Path) -> list[dict]:
    """metrics.jsonl without what depends on the clock and the starts."""
    lines = (folder / "runs/tiny/metrics.jsonl").read_text(encoding="utf-8").split("\n")
    entries = [json.loads(line) for line in lines if line]
    clock = ("seconds", "estimated", "tokens_per_second", "memory_mb")
    return [
        {k: v for k, v in entry.items() if k not in clock} for entry in entries if entry["event"] != "start"
    ]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """A run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("straight")
    config_in(folder)
    train(folder)
    return folder


def killed(folder: Path, moment: str) -> None:
    result = run_command("train", "tiny.yaml", cwd=folder, before=(kill_at, *MOMENTS[moment]))
    assert result.status == -signal.SIGKILL, result.err


def same_end(folder: Path, straight: Path) -> None:
    assert weights(folder) == weights(straight)
    assert measured(folder) == measured(straight)


QUICK = [
    "writing the first model",
    "writing a checkpoint, before its name",
    "between a checkpoint and its link for averaging",
]


@pytest.mark.parametrize(
    "moment", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in MOMENTS]
)
def test_interrupted_run_equals_uninterrupted_run(moment, straight, tmp_path):
    config_in(tmp_path)
    killed(tmp_path, moment)
    train(tmp_path)
    same_end(tmp_path, straight)


# Every part of the data that an epoch depends on: weights, fractions, tags, held-out sets, whole updates,
# changed words; and two validation sets, whose scores are in the record.
SEVERAL_CORPORA = {
    "bpe_dropout": 0.1,
    "update_tokens": 1500,
    "data": {
        "train": [
            {"toy": "train", "size": 900, "weight": 0.5, "name": "half"},
            {"toy": "valid", "size": 300, "weight": 1.7, "tag": "<other>"},
        ],
        "temperature": 1.5,
        "augment": {"typos": 0.3, "upper": 0.2},
        "valid": [{"from_train": {"share": 0.05, "max": 30}}, {"toy": "test", "size": 20, "name": "more"}],
        "test": [{"from_train": {"share": 0.05, "max": 30}}],
    },
}
# Noise and masks are other ones in each epoch.
ENGLISH = {"language": "en", "objective": "masked_lm"}
MASKED = {
    "kind": "encoder",
    "bpe_dropout": 0.1,
    "data": {
        "train": {"toy": "train", "size": 300, **ENGLISH},
        "valid": {"toy": "valid", "size": 30, **ENGLISH},
        "test": [],
        "masked_lm": {"next_sentence": True},
    },
}
DENOISED = {
    "data": {
        "train": [
            {"toy": "train", "size": 300},
            {"toy": "train", "size": 600, "weight": 0.7, "language": "de", "objective": "denoise"},
        ]
    }
}


@pytest.mark.parametrize(
    "change",
    [
        {**SEVERAL_CORPORA, "packed": True, "optimizer": "muon"},  # unpacked: in windows, below
        MASKED,
        pytest.param(DENOISED, marks=pytest.mark.long),
        pytest.param({"bpe_dropout": 0.1, "guided_alignment": {"weight": 0.05}}, marks=pytest.mark.long),
        pytest.param({"average": "ema", "ema_decay": 0.9}, marks=pytest.mark.long),
        pytest.param(
            {"bpe_dropout": 0.1, "data": {"changes": [{"terms": {"share": 0.5}}]}},
            marks=[needs("terms"), pytest.mark.long],
        ),
        pytest.param({"loss": "simcut", "log_gradients": True}, marks=[needs("lab"), pytest.mark.long]),
        pytest.param({"loss": "r_drop", "accumulate": 2}, marks=[needs("lab"), pytest.mark.long]),
        pytest.param({"precision": "bf16", "accumulate": 3}, marks=pytest.mark.slow),
        pytest.param({"precision": "fp16", "average": "best"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_other_settings_resume_as_exactly(change, tmp_path):
    for name in ("a", "b"):
        config_in(tmp_path / name, **change)
    killed(tmp_path / "b", "in an update")
    train(tmp_path / "a")
    train(tmp_path / "b")
    same_end(tmp_path / "b", tmp_path / "a")


def in_windows(*moment: object) -> None:
    """Windows of a few small blocks, and perhaps a moment to be killed at."""
    from transformer_mt.data.batches import batching
    from transformer_mt.data.preparation import clean

    clean.BLOCK, batching._LEAST_BATCHES = 40, 1
    if moment:
        kill_at(*moment)


@pytest.mark.parametrize(
    "change",
    [SEVERAL_CORPORA, *(pytest.param(change, marks=pytest.mark.long) for change in (MASKED, DENOISED))],
)
def test_a_run_in_windows_resumes_as_exactly(change, tmp_path):
    change = {**change, "data": {**change["data"], "window_pairs": 120, "max_length_ratio": 3.8}}
    for name in ("a", "b"):
        config_in(tmp_path / name, **change)
    killed_there = in_windows, *MOMENTS["in an update"]
    for name, before in (("b", killed_there), ("a", (in_windows,)), ("b", (in_windows,))):
        result = run_command("train", "tiny.yaml", cwd=tmp_path / name, before=before)
        assert result.status == (-signal.SIGKILL if before is killed_there else 0), result.err
    same_end(tmp_path / "b", tmp_path / "a")
    newest = max((tmp_path / "a/runs/tiny/checkpoints").glob("step-*")) / "state.json"
    place = json.loads(newest.read_text(encoding="utf-8"))["batches"]
    assert place["windows"] > 2 and (place["epoch"] or place["window"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_leaves_with_one_line(number, straight, tmp_path):
    config_in(tmp_path)
    words = ["train.max_updates=100000"]  # not over before the signal comes
    process = WarmProcess(("train", "tiny.yaml", *words), cwd=tmp_path)
    journal = tmp_path / "runs/tiny/metrics.jsonl"
    deadline = time.time() + 120
    while time.time() < deadline and not (
        journal.exists() and '"train"' in journal.read_text(encoding="utf-8")
    ):
        time.sleep(0.01)
    process.send_signal(number)
    result = process.wait(timeout=120)
    errors = result.err
    assert result.status == 128 + number
    assert "and saved; run the same command to resume" in errors.strip().split("\n")[-1]
    assert "Traceback" not in errors
    (stopped,) = re.findall(r"stopped at update (\d+)", errors)
    assert f"update {stopped} of" in train(tmp_path, f"train.max_updates={max(24, int(stopped) + 1)}")
    if int(stopped) < 24:
        assert (
            weights(tmp_path)["runs/tiny/model.safetensors"]
            == weights(straight)["runs/tiny/model.safetensors"]
        )


def test_a_damaged_newest_checkpoint_is_reported_and_the_one_before_taken(straight, tmp_path):
    config_in(tmp_path)
    killed(tmp_path, "averaging at the end")
    newest = tmp_path / "runs/tiny/checkpoints/step-00000024/optimizer.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    said = train(tmp_path)
    assert (
        "step-00000024/optimizer.safetensors is damaged" in said and "step-00000018: update 18 of 24" in said
    )
    same_end(tmp_path, straight)


def test_a_finished_run_says_so_and_goes_on_when_asked_for_more(straight, tmp_path):
    shutil.copytree(straight, tmp_path, dirs_exist_ok=True)
    raised = "to train longer, raise train.max_updates (24) and run the same command to resume"
    assert f"finished at update 24; {raised}" in train(tmp_path)
    same_end(tmp_path, straight)
    others = ("model.dropout=0.4", "tokenizer.bpe_dropout=0.3", "data.augment.upper=0.5", "decode.beam=3")
    train(tmp_path, "train.max_updates=20", *others)
    kept = yaml.safe_load((tmp_path / "runs/tiny/config.yaml").read_text(encoding="utf-8"))
    assert kept["model"]["dropout"] == 0.2 and kept["train"]["max_updates"] == 24  # what was trained
    assert kept["tokenizer"]["bpe_dropout"] == 0 == kept["data"]["augment"]["upper"]
    assert kept["decode"]["beam"] == 3  # what translates
    said = train(tmp_path, "train.max_updates=28")
    assert "changed since the last checkpoint: `train.max_updates` from 24 to 28" in said
    assert "update 24 of 28" in said
    assert (tmp_path / "runs/tiny/checkpoints/step-00000028").is_dir()


def test_what_cannot_change_is_refused_and_fresh_starts_over(straight, tmp_path):
    shutil.copytree(straight, tmp_path, dirs_exist_ok=True)
    said = train(tmp_path, "model.d_ff=128", "seed=2", "train.max_updates=30", code=2)
    assert "`model.d_ff` must stay 64 when a run is resumed, but is 128" in said
    assert "`seed` must stay 1 when a run is resumed, but is 2" in said
    assert "start over with --fresh" in said
    same_end(tmp_path, straight)  # nothing was touched
    said = train(tmp_path, "train.max_updates=30", "data.train.size=1400", code=2)
    assert "the training or validation data changed since this run began" in said
    said = train(tmp_path, "train.max_updates=30", "data.test=[{toy: train, size: 5}]", code=2)
    assert "the test sets, which training leaves out, changed since this run began; restore the old" in said
    # Other data: refused too, and the run's config stays as it was
    train(tmp_path, "data.max_length=60", code=2)
    assert "max_length: 64" in (tmp_path / "runs/tiny/config.yaml").read_text(encoding="utf-8")
    train(tmp_path, "--fresh", "data.train={source: no/a, target: no/b}", code=2)
    assert not list((tmp_path / "runs").glob("tiny.old-*"))
    said = train(tmp_path, "model.d_ff=128", "train.max_updates=6", "--fresh")
    (aside,) = (tmp_path / "runs").glob("tiny.old-*")
    assert f"the old run is now runs/{aside.name}" in said
    assert (aside / "checkpoints/step-00000024").is_dir()


def fill_the_disk_at_checkpoint_18() -> None:
    original = checkpoint.write_tensors

    def full(path, *rest):
        if "step-00000018" in str(path):
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(path, *rest)

    checkpoint.write_tensors = full


def test_a_full_disk_is_a_clear_message_and_costs_nothing_saved(straight, tmp_path, cli):
    """The third checkpoint finds the disk full; then there is room again."""
    config_in(tmp_path)
    result = cli("train", "tiny.yaml", cwd=tmp_path, before=(fill_the_disk_at_checkpoint_18,))
    last = result.err.strip().split("\n")[-1]
    assert result.status == 1
    assert "step-00000018: No space left on device" in last
    assert last.endswith("free some space and run the same command to resume from step-00000012")
    train(tmp_path)
    same_end(tmp_path, straight)


def test_a_model_without_checkpoints_is_not_trained_over(straight, tmp_path):
    """Somebody made room; the same command must not begin anew in place of what was trained."""
    shutil.copytree(straight, tmp_path, dirs_exist_ok=True)
    run = tmp_path / "runs/tiny"
    for folder in (run / "checkpoints").iterdir():
        (folder / "optimizer.safetensors").write_bytes(b"")
    said = train(tmp_path, code=1)
    assert "checkpoints are damaged; start over with --fresh" in said
    assert "checkpoints are damaged; start over with --fresh" in train(tmp_path, code=1)
    shutil.rmtree(run / "checkpoints")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    assert (
        "must hold the checkpoints of its model to be resumed, but holds none; start over with --fresh"
        in train(tmp_path, code=2)
    )
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before
    assert "the old run is now" in train(tmp_path, "--fresh")


def test_what_cannot_be_read_is_not_called_damaged(straight, tmp_path, monkeypatch):
    def unreadable(path, *rest, usual=Path.open, **options):
        if path.suffix == ".safetensors":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return usual(path, *rest, **options)

    shutil.copytree(straight / "runs/tiny/checkpoints", tmp_path / "checkpoints")
    monkeypatch.setattr(Path, "open", unreadable)
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.newest(tmp_path / "checkpoints")
    assert not list((tmp_path / "checkpoints").glob("damaged-*"))
