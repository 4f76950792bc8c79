"""The lines that a training prints of itself, and what it logs with them."""

from typing import Any

from transformer_mt.evaluation.metrics import tokenised_note
from transformer_mt.memory import peak_memory
from transformer_mt.messages import say
from transformer_mt.progress_bar import duration
from transformer_mt.training.reporting.diagnosis import what_to_raise
from transformer_mt.training.reporting.run_environment import environment
from transformer_mt.training.state.progress import LogWindow
from transformer_mt.training.state.run import Run
from transformer_mt.training.update.schedule import learning_rate

_USUAL_RATE = 0.1
"""Highest learning rate that is not doubted; the configs have 0.0005 to 0.012."""


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
    """Say that there is nothing to do, and what to change for more."""
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


def log(run: Run) -> None:
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
        f"tokens/s{time_left(run)}"
    )
    progress.window = LogWindow()


def time_left(run: Run) -> str:
    """The end of a line: how long the training still takes, if that is known."""
    left = run.estimate.left(run.progress.step, run.config.train)
    return "" if left is None else f"  {duration(left)} left"
