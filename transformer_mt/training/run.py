"""A run: its folder and everything in it that changes, put together from a config, saved and restored as one."""

import fcntl
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint, CheckpointError
from transformer_mt.config import Config
from transformer_mt.config_file import dump_config
from transformer_mt.data.batching import TrainingBatches
from transformer_mt.data.prepare import PreparedData, prepare
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.device import choose_device, choose_precision, keep_large_buffers
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.scores import corpus_scores
from transformer_mt.model.build import build_model
from transformer_mt.model.transformer import Transformer
from transformer_mt.training.journal import Journal, say
from transformer_mt.training.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from transformer_mt.training.progress import Progress
from transformer_mt.training.step import Updater


@dataclass
class Run:
    """What one training works on."""

    config: Config
    folder: Path
    data: PreparedData
    device: torch.device
    model: Transformer
    optimizer: torch.optim.Optimizer
    updater: Updater
    batches: TrainingBatches
    progress: Progress
    journal: Journal
    lock: IO[str]
    """Held open while the run lives."""
    saved_step: int | None = None

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def averaging(self) -> Path:
        """Weights of the checkpoints that will be averaged; hard links, so they cost nothing while those exist."""
        return self.folder / "averaging"

    def state_dict(self) -> dict[str, Any]:
        """All that is not a tensor."""
        return {
            "progress": self.progress.state_dict(),
            "batches": self.batches.state_dict(),
            "scaler": self.updater.scaler.state_dict(),
            "data_fingerprint": self.data.fingerprint,
            "config": self.config.model_dump(),
        }

    def save(self) -> None:
        """Write a checkpoint of this moment, unless there is one; keep the newest and the best."""
        if self.saved_step == self.progress.step:
            return
        rng = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            rng["cuda"] = torch.cuda.get_rng_state(self.device)
        tensors = {
            "model": checkpoint.model_weights(self.model),
            "optimizer": optimizer_tensors(self.optimizer, self.model),
            "rng": rng,
        }
        try:
            path = checkpoint.save(self.checkpoints, self.progress.step, tensors, self.state_dict())
        except CheckpointError as error:
            whole = checkpoint.all_checkpoints(self.checkpoints)
            last = f"the last whole checkpoint is {whole[-1].name}" if whole else "there is no whole checkpoint yet"
            raise WorkError(f"{error}; {last}; make room and run the same command to go on from it") from None
        self.saved_step = self.progress.step
        checkpoint.rotate(self.checkpoints, self.config.train.keep_checkpoints, self.progress.best_step)
        self._keep_for_averaging(path)

    def restore(self, saved: Checkpoint) -> None:
        """Become the run that wrote the checkpoint."""
        state = saved.state
        if state["data_fingerprint"] != self.data.fingerprint:
            raise InputError(
                f"{self.folder}: the training or validation data changed since this run began; "
                "bring the old data back, or start over with --fresh"
            )
        checkpoint.load_model_weights(self.model, saved.tensors["model"], str(saved.path))
        load_optimizer_tensors(self.optimizer, self.model, saved.tensors["optimizer"])
        if self.updater.scaler.is_enabled() and state["scaler"]:  # another precision has none
            self.updater.scaler.load_state_dict(state["scaler"])
        self.batches.load_state_dict(state["batches"])
        self.progress.load_state_dict(state["progress"])
        torch.set_rng_state(saved.tensors["rng"]["cpu"])
        if self.device.type == "cuda" and "cuda" in saved.tensors["rng"]:
            torch.cuda.set_rng_state(saved.tensors["rng"]["cuda"], self.device)
        self.saved_step = self.progress.step
        self._keep_for_averaging(saved.path)

    def averaged_steps(self) -> list[int]:
        """Steps of the checkpoints whose weights are to be averaged, of those kept so far.

        An interruption saves off the beat; such a checkpoint does not count, so that interrupted runs end the same.
        """
        train, progress = self.config.train, self.progress
        there = sorted(int(path.stem.removeprefix("step-")) for path in self.averaging.glob("step-*.safetensors"))
        there = [step for step in there if step <= progress.step]
        on_beat = [step for step in there if step % train.save_every == 0 or step == train.max_updates]
        if train.average == "last":
            return on_beat[-train.average_checkpoints :]
        scores, new_bests = dict(progress.scores), progress.new_bests()
        candidates = [step for step in there if step in scores and (step in on_beat or step in new_bests)]
        return sorted(sorted(candidates, key=lambda step: (-scores[step], -step))[: train.average_checkpoints])

    def averaging_file(self, step: int) -> Path:
        return self.averaging / f"step-{step:08d}.safetensors"

    def _keep_for_averaging(self, path: Path) -> None:
        """Link the weights of a new checkpoint into `averaging` and drop those no longer wanted there."""
        if self.config.train.average_checkpoints == 1:
            return
        self.averaging.mkdir(exist_ok=True)
        link = self.averaging / f"{path.name}.safetensors"
        try:
            link.unlink(missing_ok=True)
            link.hardlink_to(path / "model.safetensors")
        except OSError:  # a file system without hard links
            checkpoint.save_weights(link, checkpoint.load_weights(path / "model.safetensors"))
        wanted = {self.averaging_file(step) for step in self.averaged_steps()}
        for file in self.averaging.glob("step-*.safetensors"):
            if file not in wanted:
                file.unlink()


def open_run(config: Config, folder: Path, fresh: bool = False) -> Run:
    """The run in `folder`, at its newest whole checkpoint or at its beginning; `fresh` moves an old run aside first.

    Nothing in the folder is touched before the config, the device and the data are found good.
    """
    device = choose_device(config.train.device)
    # Whether BLEU can be computed is asked now, not at the first validation.
    corpus_scores(["a"], ["a"], config.data.target_lang, config.evaluate.tokenize, metrics=("BLEU",))
    saved = None if fresh else checkpoint.newest(folder / "checkpoints", say)
    if saved is not None:
        _compare_configs(Config.model_validate(saved.state["config"]), config, folder)
    data = prepare(config, say, Tokenizer.load(folder) if saved is not None else None)
    if fresh and folder.is_dir():
        _lock(folder).close()  # a run that is being trained must not be moved from under its process
        set_aside(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lock = _lock(folder)
    if device.type == "cpu":
        keep_large_buffers()

    torch.manual_seed(config.seed)
    tokenizer = data.tokenizer
    model = build_model(
        config.model, tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size(), tokenizer.shared, config.data.max_length
    ).to(device)
    optimizer = build_optimizer(model, config.train)
    compiled = config.train.compile is True or (config.train.compile == "auto" and device.type == "cuda")
    updater = Updater(
        model,
        torch.compile(model, dynamic=True) if compiled else model,
        optimizer,
        device,
        choose_precision(config.train.precision, device),
        config.train.label_smoothing,
        config.train.max_grad_norm,
    )
    batches = TrainingBatches(data.train, config.train.batch_tokens, config.seed)
    run = Run(config, folder, data, device, model, optimizer, updater, batches, Progress(), Journal(folder), lock)
    if saved is not None:
        run.restore(saved)
        say(f"going on from {saved.path}: update {run.progress.step:,} of {config.train.max_updates:,}")
    else:
        tokenizer.save(folder)
    checkpoint.write_text(folder / "config.yaml", dump_config(config, comments=True))
    return run


def _lock(folder: Path) -> IO[str]:
    """Keep other processes from training in the folder, for as long as the file stays open."""
    lock = (folder / ".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(
            f"{folder}: another process trains here; wait for it, or choose another folder with --out"
        ) from None
    return lock


def set_aside(folder: Path) -> None:
    """Move an old run out of the way, under a name that says when; nothing is deleted."""
    if Path.cwd().is_relative_to(folder.resolve()):
        raise InputError(f"{folder}: --fresh must not move the folder you are in; start from outside it")
    name = f"{folder.resolve().name}.old-{time.strftime('%Y%m%d-%H%M%S')}"
    aside = next(
        path for i in itertools.count() if not (path := folder.with_name(name + (f"-{i}" if i else ""))).exists()
    )
    folder.rename(aside)
    say(f"the old run is now {aside}")


# What a run cannot change on its way: the arrays have their shapes, and the place in the data its meaning.
_FIXED = (
    "seed",
    "data.source_lang",
    "data.target_lang",
    "tokenizer.",
    "model.",
    "train.batch_tokens",
    "train.optimizer",
)
_FREE = ("model.dropout", "model.attention_dropout", "model.ffn_dropout")


def _compare_configs(old: Config, new: Config, folder: Path) -> None:
    """Say which keys changed since the checkpoint; refuse those that cannot change."""
    before, after = _flat(old.model_dump()), _flat(new.model_dump())
    changed = [key for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)]
    fixed = (*_FIXED, "data.max_length") if old.model.position == "learned" else _FIXED
    refused = [key for key in changed if key.startswith(fixed) and key not in _FREE]
    if refused:
        lines = [
            f"`{key}` must stay {before.get(key)!r} in a run that goes on, but is {after.get(key)!r}" for key in refused
        ]
        raise InputError(
            "\n".join([*lines, f"{folder}: put them back, or start over with --fresh, or train under another name"])
        )
    for key in changed:
        say(f"changed since the last checkpoint: `{key}` from {before.get(key)!r} to {after.get(key)!r}")


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
