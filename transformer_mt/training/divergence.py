"""The end of a training that learns nothing any more."""

import math

import torch

from transformer_mt import checkpoint
from transformer_mt.errors import Setting, WorkError
from transformer_mt.training.state.run import Run
from transformer_mt.training.update.sharding import local_rows

_TIMES = 4
"""A loss of so many times that of a uniform guess is out of all bounds."""
_WORSE = 1.05
"""Times the loss of the first update: a training with too low a learning rate stays there."""
_VALIDATIONS = 3
"""In a row, each worse than a uniform guess."""


def is_out_of_bounds(run: Run, loss: float) -> bool:
    """True if no model that learns has such a loss per target token."""
    return not math.isfinite(loss) or loss > _TIMES * _uniform(run)


def check_training_loss(run: Run) -> None:
    """WorkError if the loss of the last update is out of all bounds."""
    if is_out_of_bounds(run, run.progress.train_nll):
        raise diverged(run, f"the training loss is {_beside_a_guess(run, run.progress.train_nll)}")


def check_validations(run: Run) -> None:
    """WorkError if the last validation is out of all bounds, or the last ones are worse than a uniform guess,
    and than the model at its beginning, although the warm-up is over. A model that overfits may be so, too,
    but not on what it is trained on.
    """
    progress = run.progress
    bound = max(_uniform(run), _WORSE * progress.first_nll)
    last = [(step, loss) for step, _, loss, _ in progress.scores[-_VALIDATIONS:] if step]
    if not last:  # what the parent can do
        return
    is_lost = (
        len(last) == _VALIDATIONS
        and last[0][0] > run.config.train.warmup
        and all(loss > bound for _, loss in last)
        and progress.train_nll > bound
    )
    if is_lost or is_out_of_bounds(run, last[-1][1]):
        raise diverged(run, f"the validation loss is {_beside_a_guess(run, last[-1][1])}")


def _uniform(run: Run) -> float:
    """The loss of a uniform guess over the vocabulary, in nats per target token."""
    return math.log(run.data.tokenizer.tgt.vocab_size())


def _beside_a_guess(run: Run, loss: float) -> str:
    return f"{loss:.2f} (of a uniform guess {_uniform(run):.2f})"


class Diverged(WorkError):
    """The training learns nothing any more; its present weights are not to be saved."""


def diverged(run: Run, what: str) -> Diverged:
    """The end of a training that has diverged, with advice that works: checkpoints after the last good
    validation are set aside, so that the run resumes from there; without one only a new start helps.
    """
    train, progress, uniform = run.config.train, run.progress, _uniform(run)
    text = f"the training has diverged: at update {progress.step:,} {what}; "
    if train.loss != "cross_entropy":
        text += f"if the sums of `train.loss: {train.loss}` are right, "
    elif run.config.init_from and is_out_of_bounds(run, progress.first_nll):
        text += f"it was {progress.first_nll:.2f} at the first: if `init_from` fits the data, "
    text += f"lower train.learning_rate ({train.learning_rate:g})"
    if run.updater.dtype == torch.float16:
        text += ", or set train.precision=bf16 or fp32"
    good = [step for step, _, loss, _ in progress.scores if step and loss < uniform]
    if not good or not checkpoint.set_aside_after(run.folder.checkpoints, good[-1], run.ranks.is_rank_zero):
        return Diverged(
            f"{text} or raise train.warmup ({train.warmup:,}), and start over with ", Setting("fresh")
        )
    return Diverged(
        f"{text}, and resume by the same command (without ", Setting("fresh"),
        f") from update {good[-1]:,}, the last that validated well; later checkpoints are set aside",
    )  # fmt: skip


def check_weights(run: Run) -> None:
    """WorkError if a weight is not finite: such a checkpoint would take the place of a good one. A collective
    operation.
    """
    largest = [
        local_rows(weight.detach()).abs().amax() for weight in run.model.parameters() if weight.numel()
    ]
    is_finite = bool(torch.stack([value.float() for value in largest if value.numel()]).isfinite().all())
    if not all(run.ranks.gather(is_finite)):
        raise diverged(run, "weights are not finite")
