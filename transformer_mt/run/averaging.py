"""Averages of the weights of several updates: of checkpoints, or of all by a moving average."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_mt import checkpoint
from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import TrainConfig
from transformer_mt.messages import say
from transformer_mt.run.progress import Progress
from transformer_mt.update.sharding import copy_full, on_cpu


class Averaging:
    """A folder of weights; hard links, so they cost nothing while their checkpoints exist."""

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
        if len(wanted) < self._train.average_checkpoints:  # after a change of the scores there are none
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
        """Continue with a saved average; without one, with the weights of the model."""
        for name, average, weight in zip(self._names, self._average, self._weights):
            if name in saved:
                copy_full(average, saved[name])
            else:
                average.copy_(weight.detach())
