"""The end of a training that learns nothing any more."""

import math

from transformer_mt.errors import Setting, WorkError
from transformer_mt.training.state.run import Run

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
        raise _diverged(run, "training", run.progress.train_nll)


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
        raise _diverged(run, "validation", last[-1][1])


def _uniform(run: Run) -> float:
    """The loss of a uniform guess over the vocabulary, in nats per target token."""
    return math.log(run.data.tokenizer.tgt.vocab_size())


def _diverged(run: Run, what: str, loss: float) -> WorkError:
    train = run.config.train
    return WorkError(
        f"the training has diverged: at update {run.progress.step:,} the {what} loss is {loss:.2f}, but that "
        f"of a uniform guess {_uniform(run):.2f}; lower train.learning_rate ({train.learning_rate:g}) or "
        f"raise train.warmup ({train.warmup:,}), and start over with ",
        Setting("fresh"),
    )
