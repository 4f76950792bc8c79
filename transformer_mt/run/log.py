"""What a training prints and logs: the lines of metrics.jsonl and of the screen, the text beside the progress
bar, and the error that ends a training that diverges.
"""

import math
from typing import Any

import torch

from transformer_mt import checkpoint
from transformer_mt.device import peak_memory
from transformer_mt.errors import Setting, WorkError
from transformer_mt.evaluation.metrics import tokenised_note
from transformer_mt.messages import duration, say
from transformer_mt.run.progress import LogWindow
from transformer_mt.run.report import environment, what_to_raise
from transformer_mt.run.run import Run
from transformer_mt.update.schedule import learning_rate
from transformer_mt.update.sharding import local_rows
from transformer_mt.update.step import UpdateResult

_TIMES = 4
"""A loss is out of bounds if it is more than this many times the loss of a uniform guess."""
_WORSE = 1.05
"""Factor on the loss of the first update: with too low a learning rate, a training stays near that loss."""
_VALIDATIONS = 3
"""Number of successive validations that must all be worse than a uniform guess."""


def is_out_of_bounds(run: Run, loss: float) -> bool:
    """True if the loss per target token is not finite, or too high for a model that learns."""
    return not math.isfinite(loss) or loss > _TIMES * _uniform(run)


def check_training_loss(run: Run) -> None:
    """WorkError if the loss of the last update is out of all bounds."""
    if is_out_of_bounds(run, run.progress.train_nll):
        raise diverged(run, f"the training loss is {_beside_a_guess(run, run.progress.train_nll)}")


def check_validations(run: Run) -> None:
    """WorkError if the last validation is out of bounds, or if the last few, all after the warm-up, are worse
    than both a uniform guess and the loss at the first update. The training loss must be worse, too: a model
    that only overfits has a low one.
    """
    progress = run.progress
    bound = max(_uniform(run), _WORSE * progress.first_nll)
    last = [(step, loss) for step, _, loss, _ in progress.scores[-_VALIDATIONS:] if step]
    if not last:  # at most the parent was validated, before the first update
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
    return f"{loss:.2f} (a uniform guess has {_uniform(run):.2f})"


class Diverged(WorkError):
    """The training learns nothing any more; its present weights are not to be saved."""


def diverged(run: Run, what: str) -> Diverged:
    """Returns the error that ends a diverged training, with advice. Checkpoints after the last good
    validation are set aside, so that the run resumes from there. If there is none, the run must start over.
    """
    train, progress, uniform = run.config.train, run.progress, _uniform(run)
    text = f"the training has diverged: at update {progress.step:,} {what}; "
    if train.loss != "cross_entropy":
        text += f"if the sums of `train.loss: {train.loss}` are right, "
    elif run.config.init_from and is_out_of_bounds(run, progress.first_nll):
        text += f"the first update had a loss of {progress.first_nll:.2f}; if `init_from` fits the data, "
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


_USUAL_RATE = 0.1
"""A learning rate above this gets a note; the configs have 0.0005 to 0.012."""


def start(run: Run) -> None:
    """Say and log what is trained on what."""
    config, progress = run.config, run.progress
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    precision = str(run.updater.dtype).removeprefix("torch.")
    devices = f"{run.ranks.size} x {run.device.type}" if run.ranks.size > 1 else str(run.device)
    say(f"{config.name}: {parameters:,} parameters, {precision} on {devices}; run folder {run.folder}")
    if (shape := run.batches.shape) is not None:
        say(
            f"packed batches: {shape.rows:,} rows of {shape.src} source and {shape.tgt} target tokens, with "
            "several sentences in each"
        )
    elif run.device.type == "cuda":
        reason = config.why_padded() or "train.packed is false"
        say(f"padded batches, because {reason}: packed ones train faster on a GPU")
    references = [targets[0] for valid in run.data.valid for _, targets in valid.sentences]
    if note := tokenised_note(references, config.evaluate.tokenize):
        say(note)
    if config.train.learning_rate > _USUAL_RATE:
        say(
            f"note: train.learning_rate is {config.train.learning_rate:g}; Transformers seldom learn with "
            f"more than {_USUAL_RATE:g} (it is the highest rate, not a factor of it)"
        )
    if config.train.warmup >= config.train.max_updates:
        say(
            f"note: train.warmup ({config.train.warmup:,}) must be less than train.max_updates "
            f"({config.train.max_updates:,}) for the learning rate to reach train.learning_rate"
        )
    if config.train.save_every > config.train.max_updates:
        say(
            "note: train.save_every is more than train.max_updates; checkpoints are written only at a new "
            "best and at the end"
        )
    run.metrics_log.write(
        "start",
        step=progress.step,
        parameters=parameters,
        precision=precision,
        device=devices,
        changed=run.changed,
        **environment(run.device),
    )
    run.metrics_log.open_bar(progress.step, config.train.max_updates)


def finished(run: Run) -> None:
    """Say that the run is already finished, and what to change to train longer."""
    raised = what_to_raise(run.folder.config().train, run.progress.step, run.is_out_of_patience)
    say(
        f"{run.folder}: finished at update {run.progress.step:,}; to train longer, raise {raised}, or train "
        "under another name"
    )


def early_end(run: Run) -> None:
    """Say that no validation was better for too long."""
    progress = run.progress
    falls = "; the validation loss still fell" if progress.loss_still_falls else ""
    say(
        f"no new best in {progress.stale} validations (train.patience): training ends at update "
        f"{progress.step:,} of {run.config.train.max_updates:,}{falls}"
    )


def updates(run: Run) -> None:
    """Say and log the updates since the last such line."""
    progress = run.progress
    facts: dict[str, Any] = progress.window.summary()
    rate = learning_rate(progress.step, run.config.train)
    if run.newest_result is not None and (layers := run.newest_result.layers):
        facts |= {
            f"{name}_by_layer": {layer: values[i] for layer, values in layers.items()}
            for i, name in enumerate(("grad_norm", "change"))
        }
    run.metrics_log.write(
        "train",
        step=progress.step,
        epoch=run.batches.epochs,
        tokens=progress.tokens,
        learning_rate=rate,
        skipped=progress.skipped,
        seconds=progress.seconds,
        memory_mb=peak_memory(run.device) / 1e6,
        **facts,
    )
    say(
        f"update {progress.step:,}/{run.config.train.max_updates:,}  epoch {run.batches.epochs:.2f}  loss "
        f"{facts['loss']:.3f}  ppl {facts['ppl']:.2f}  lr {rate:.2e}  {facts['tokens_per_second']:,.0f} "
        f"tokens/s{time_remaining(run)}"
    )
    progress.window = LogWindow()


def beside_bar(run: Run, last: UpdateResult, tokens_per_second: float) -> str:
    """The text beside the progress bar after the update `last`."""
    ppl = math.exp(min(100.0, last.nll / last.num_tokens)) if not last.skipped else math.nan
    loss, left = last.loss / last.num_tokens, time_remaining(run)
    return f"loss {loss:.3f}, ppl {ppl:.2f}, {tokens_per_second:,.0f} tok/s{left}"


def time_remaining(run: Run) -> str:
    """The end of a line: how long the training still takes, if that is known."""
    left = run.estimate.left(run.progress.step, run.config.train)
    return "" if left is None else f"  {duration(left)} left"
