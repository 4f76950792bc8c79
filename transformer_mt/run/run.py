"""A run: its folder, and the state that changes during training, which is saved and restored together. Also
decides which checkpoints are kept and averaged, and when a training has ended.
"""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint, CheckpointError
from transformer_mt.config import Config, TrainConfig
from transformer_mt.config.error_sentences import marks
from transformer_mt.data.batches.batching import BatchPrefetcher
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import WorkError, advice_on
from transformer_mt.files import FolderLock
from transformer_mt.messages import say
from transformer_mt.model.build_model import build_model
from transformer_mt.model.interface import TranslationModel
from transformer_mt.ranks import Ranks
from transformer_mt.run.config_changes import changed_keys
from transformer_mt.run.loggers import EnergyMeter, MetricsLog, TimeEstimate
from transformer_mt.run.progress import Progress
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.part import part_title
from transformer_mt.settings.section import OF_RUN, Mark
from transformer_mt.update.build_updater import is_partial, split, whole
from transformer_mt.update.optimizer import load_optimizer_tensors, optimizer_tensors
from transformer_mt.update.sharding import copy_full, full_weights, load_full_weights, on_cpu
from transformer_mt.update.step import PendingResult, Updater, UpdateResult


class Averaging:
    """The folder with the weights to average. They are hard links, which take no space while the checkpoints
    exist.
    """

    def __init__(self, folder: Path, train: TrainConfig) -> None:
        self._folder, self._train = folder, train

    def file(self, step: int) -> Path:
        """File with the weights of an update."""
        return self._folder / f"step-{step:08d}.safetensors"

    def keep(self, path: Path, progress: Progress) -> None:
        """Link the weights of a new checkpoint, and drop those that are no longer wanted."""
        if self._train.average_checkpoints == 1 or self._train.average == "ema":
            return
        self._folder.mkdir(exist_ok=True)
        link = self._folder / f"{path.name}.safetensors"
        try:
            link.unlink(missing_ok=True)
            link.hardlink_to(path / "model.safetensors")
        except OSError:  # a file system without hard links
            checkpoint.save_weights(link, checkpoint.load_weights(path / "model.safetensors"))
        wanted = {self.file(step) for step in self.steps(progress)}
        if len(wanted) < self._train.average_checkpoints:  # for example after the scores were reset
            return
        for file in self._folder.glob("step-*.safetensors"):
            if file not in wanted:
                file.unlink()

    def steps(self, progress: Progress) -> list[int]:
        """Steps of the checkpoints whose weights are to be averaged, of those kept so far.

        Checkpoints written by an interruption, outside the `save_every` schedule, are ignored: an interrupted
        run then averages the same steps as an uninterrupted one.
        """
        train = self._train
        saved = sorted(
            int(path.stem.removeprefix("step-")) for path in self._folder.glob("step-*.safetensors")
        )
        saved = [step for step in saved if 0 < step <= progress.step]  # update 0 is the parent's model
        scheduled = [step for step in saved if step % train.save_every == 0 or step == train.max_updates]
        if train.average == "last":
            return scheduled[-train.average_checkpoints :]
        scores = {
            step: (step != progress.best_step, -score, loss if math.isfinite(loss) else math.inf, -step)
            for step, score, loss, _ in progress.scores
        }
        best_steps = progress.best_steps()
        candidates = [step for step in saved if step in scores and (step in scheduled or step in best_steps)]
        return sorted(sorted(candidates, key=scores.__getitem__)[: train.average_checkpoints])

    def readable_steps(self, progress: Progress) -> list[int]:
        """The steps to average, without damaged files."""
        readable = []
        for step in self.steps(progress):
            try:
                checkpoint.load_weights(self.file(step))
                readable.append(step)
            except CheckpointError as error:
                say(f"{error}; it is left out of the average")
        return readable


class MovingAverage:
    """After update t the average is d times itself plus 1 - d times the weights, with d = min(`decay`,
    (1 + t) / (10 + t)), so that it soon forgets the random weights of the beginning.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Begins with the weights of the model, which may be sharded."""
        trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self._names, self._weights, self._decay = list(trained), list(trained.values()), decay
        self._average = [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take the weights after update `step`."""
        decay = min(self._decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self._average, [weight.detach() for weight in self._weights], 1 - decay)

    def weights(self, keep: bool = True) -> dict[str, Tensor]:
        """The average on the CPU; nothing on a rank that need not `keep` it. A collective operation."""
        full = {name: on_cpu(tensor, keep) for name, tensor in zip(self._names, self._average)}
        return {name: tensor for name, tensor in full.items() if tensor is not None}

    def load(self, saved: dict[str, Tensor]) -> None:
        """Continue with a saved average; weights that are not in it begin as those of the model."""
        for name, average, weight in zip(self._names, self._average, self._weights):
            if name in saved:
                copy_full(average, saved[name])
            else:
                average.copy_(weight.detach())


def random_states(device: torch.device, ranks: Ranks) -> dict[str, Tensor]:
    """The random states of all ranks by name: `cpu`, and `cuda` or `mps` if that is the device. The names for
    rank r > 0 are `cpu.r` and `cuda.r`. A collective operation.
    """
    own_states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        own_states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        own_states["mps"] = torch.mps.get_rng_state()
    states = ranks.gather({kind: bytes(state.tolist()).hex() for kind, state in own_states.items()})
    return {
        _name(kind, rank): torch.frombuffer(bytearray.fromhex(state), dtype=torch.uint8)
        for rank, of_rank in enumerate(states)
        for kind, state in of_rank.items()
    }


def restore_random_states(states: dict[str, Tensor], device: torch.device, ranks: Ranks, seed: int) -> None:
    """Restore this rank's states. A rank without saved states (the checkpoint had fewer ranks) is seeded with
    `seed` and its rank.
    """
    if (cpu := states.get(_name("cpu", ranks.rank))) is None:
        torch.manual_seed(seed + ranks.rank)
        return
    torch.set_rng_state(cpu)
    of_device = states.get(_name(device.type, ranks.rank))
    if device.type == "cuda" and of_device is not None:
        torch.cuda.set_rng_state(of_device, device)
    elif device.type == "mps" and of_device is not None:
        torch.mps.set_rng_state(of_device)


def _name(kind: str, rank: int) -> str:
    return f"{kind}.{rank}" if rank else kind


@dataclass
class Run:
    """The objects of one training."""

    config: Config
    folder: RunFolder
    data: PreparedData
    device: torch.device
    model: TranslationModel
    updater: Updater
    batches: BatchPrefetcher
    progress: Progress
    metrics_log: MetricsLog
    ranks: Ranks
    lock: FolderLock | None
    """Held by rank 0 until the run is closed."""
    parts: dict[str, str] = field(default_factory=dict)
    """Digests of files that parts of the training read, and names of parts that a program brings."""
    changed: list[str] = field(default_factory=list)
    """Keys with other values than at the checkpoint that the run resumes from."""
    saved_step: int | None = None
    saved_at: float = field(default_factory=time.monotonic)
    """When the last checkpoint was written."""
    moving_average: MovingAverage | None = None
    """With train.average: ema."""
    newest_result: UpdateResult | None = None
    pending: list[PendingResult] = field(default_factory=list)
    """Updates whose results were not read from the device yet."""
    pending_since: float = 0.0
    estimate: TimeEstimate = field(default_factory=TimeEstimate)
    energy: EnergyMeter = field(default_factory=EnergyMeter)

    def close(self) -> None:
        """End the batch thread and the progress bar, and let others train in the folder."""
        self.batches.close()
        self.metrics_log.close()
        if self.lock is not None:
            self.lock.release()

    @property
    def averaging(self) -> Averaging:
        """The weights of checkpoints that will be averaged."""
        return Averaging(self.folder.averaging, self.config.train)

    @property
    def is_out_of_patience(self) -> bool:
        """True after `train.patience` validations without a new best."""
        return self.progress.is_out_of_patience(self.config.train.patience)

    @property
    def is_done(self) -> bool:
        """True if no update is left."""
        return self.progress.step >= self.config.train.max_updates or self.is_out_of_patience

    def state_dict(self) -> dict[str, Any]:
        """Checkpoint state other than tensors."""
        train = self.config.train
        return {
            "progress": self.progress.state_dict(),
            "batches": self.batches.state_dict(),
            "scaler": self.updater.scaler.state_dict(),
            "data_fingerprint": self.data.fingerprint,
            "parts": self.parts,
            "batches_per_update": None if train.update_tokens else self.ranks.size * train.accumulate,
            "micro_batch_tokens": self.updater.micro_batch_tokens,
            "config": self.config.model_dump(mode="json"),
        }

    def save(self) -> None:
        """Write a checkpoint unless this step has one; keep the newest and the best. A collective
        operation.
        """
        if self.saved_step == self.progress.step:
            return
        self.saved_step, self.saved_at = self.progress.step, time.monotonic()
        weights = full_weights(self.model, self.ranks.is_rank_zero) if self._needs_weights else {}
        trained, frozen = split(self.model, weights)
        tensors = {"rng": random_states(self.device, self.ranks), "model": trained}
        if self._needs_weights:
            tensors["optimizer"] = optimizer_tensors(
                self.updater.optimizer, self.model, self.ranks.is_rank_zero
            )
            if self.moving_average is not None:
                tensors["moving_average"] = self.moving_average.weights(self.ranks.is_rank_zero)
        if not self.ranks.is_rank_zero:
            return
        try:
            if frozen and not self.folder.frozen_file.exists():
                checkpoint.save_weights(self.folder.frozen_file, frozen)
            path = checkpoint.save(self.folder.checkpoints, self.progress.step, tensors, self.state_dict())
        except CheckpointError as error:
            saved = checkpoint.all_checkpoints(self.folder.checkpoints)
            then = (
                f"to resume from {saved[-1].name}" if saved else "to start again: there is no checkpoint yet"
            )
            raise WorkError(f"{error}; {advice_on(error)} and run the same command {then}") from None
        self.drop_checkpoints()
        self.averaging.keep(path, self.progress)

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints that the config does not keep."""
        kept = self.config.train.keep_checkpoints
        checkpoint.rotate(self.folder.checkpoints, kept, self.progress.best_step)

    def restore(self, saved: Checkpoint) -> None:
        """Become the run that wrote the checkpoint, whose batches and progress are restored already."""
        state = saved.state
        self.load_trained(saved.tensors["model"], str(saved.path))
        load_optimizer_tensors(self.updater.optimizer, self.model, saved.tensors.get("optimizer", {}))
        if self.moving_average is not None:
            self.moving_average.load(saved.tensors.get("moving_average", {}))
        if self.updater.scaler.is_enabled() and state["scaler"]:  # another precision has none
            self.updater.scaler.load_state_dict(state["scaler"])
        self._keep_micro_batches(state)
        before, now = Config.model_validate(state["config"], context=OF_RUN), self.config
        self.changed = changed_keys(before, now)
        scores = [key for key in self.changed if Mark.AFFECTS_SCORES in marks(Config, key)]
        commands = [one.parts.get(part_title("metric", one.train.monitor)) for one in (before, now)]
        if None not in commands and commands[0] != commands[1]:
            scores.append("the command of train.monitor")
        if scores:
            say(f"scores before and after a change of {', '.join(scores)} are not comparable")
            say("the search for the best checkpoint starts again")
            self.progress.reset_scores()
        restore_random_states(
            saved.tensors["rng"], self.device, self.ranks, self.config.seed + self.progress.step
        )
        self.saved_step = self.progress.step
        if self.ranks.is_rank_zero:
            self.averaging.keep(saved.path, self.progress)

    def _keep_micro_batches(self, state: dict[str, Any]) -> None:
        """Keep the size found after running out of memory: another division into micro-batches has other
        dropout masks. A new value in the config overrides it.
        """
        before, now = (
            state["config"]["train"].get("micro_batch_tokens", 0),
            self.config.train.micro_batch_tokens,
        )
        saved = state.get("micro_batch_tokens", before)
        if before == now != saved:
            self.updater.micro_batch_tokens = saved
            say(
                f"in micro-batches of at most {saved:,} positions, as before; train.micro_batch_tokens sets "
                "another number"
            )

    @property
    def _needs_weights(self) -> bool:
        """True if this rank takes part in collecting the weights: rank 0, and with FSDP all ranks."""
        return self.ranks.is_rank_zero or self.config.train.parallel == "fsdp"

    def weights(self) -> checkpoint.Tensors:
        """The model's full weights on the CPU, on rank 0 alone. A collective operation."""
        gathered = full_weights(self.model, self.ranks.is_rank_zero) if self._needs_weights else {}
        return whole(gathered, self.config.train)

    def load_trained(self, weights: checkpoint.Tensors, location: str) -> None:
        """Load the weights of a checkpoint, or of an average of checkpoints, into the model. Weights that are
        not trained come from the run's folder.
        """
        if is_partial(self.config.train):
            weights = {**checkpoint.load_weights(self.folder.frozen_file), **weights}
        load_full_weights(self.model, weights, location)

    def full_model(self) -> TranslationModel:
        """The model with all its weights on this device. With FSDP, where each rank holds a part, it is a
        copy.
        """
        if self.config.train.parallel != "fsdp":
            return self.model
        # Building the copy makes random weights; a validation must not change the random state of the
        # training.
        with torch.random.fork_rng(devices=[]):
            copy = model_for(self.config, self.data.tokenizer).to(self.device)
        weights = whole(full_weights(self.model), self.config.train)
        checkpoint.load_model_weights(copy, weights, "the model")
        return copy


def model_for(config: Config, tokenizer: Tokenizer) -> TranslationModel:
    src_vocab, tgt_vocab = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    return build_model(
        config.model,
        src_vocab,
        tgt_vocab,
        tokenizer.shared,
        config.data.max_length,
        config.train.guided_alignment.guided_layer,
    )
