"""The training loop: a page of sentences."""

import math
import os
import time
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from transformer_mt import checkpoint
from transformer_mt.checkpoint import CheckpointError
from transformer_mt.config import Config
from transformer_mt.device import choose_device, is_compiler_error, is_out_of_memory
from transformer_mt.errors import WorkError
from transformer_mt.evaluation.report import write_report
from transformer_mt.evaluation.scores import tokenised_note
from transformer_mt.files import write_text
from transformer_mt.training.distributed import Ranks, refuse_lost_rank
from transformer_mt.training.interrupts import Interrupts
from transformer_mt.training.journal import environment, say
from transformer_mt.training.progress import MAX_SKIPS, Window
from transformer_mt.training.run import Run, open_run
from transformer_mt.training.schedule import learning_rate
from transformer_mt.training.validate import Validation, validate

# Updates a GPU may be ahead of what is shown.
_READ_EVERY = 20


class Interrupted(Exception):
    """The user asked to stop; everything is saved. `signal_number` is what asked."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number


def train(config: Config, out: str | Path | None = None, fresh: bool = False) -> Path:
    """Train `config` in its folder, from its newest checkpoint on if there is one; gives back the folder.

    Raises InputError before any work, WorkError when the work fails, Interrupted after a signal. With several ranks a
    process that got an InputError or WorkError must end: its peers are in another state.
    """
    folder = Path(out) if out else Path("runs") / config.name
    ranks = Ranks.join(choose_device(config.train.device))
    try:
        with closing(open_run(config, folder, fresh, ranks)) as run:
            _train(run)
    except Interrupted:
        ranks.leave()
        raise
    except RuntimeError as error:
        # The group of processes is not left here: with NCCL that waits for peers which wait in a collective. The caller
        # prints the error and ends the process.
        refuse_lost_rank(error)
        if is_compiler_error(error):
            raise WorkError(
                f"torch.compile failed: {str(error).strip().splitlines()[0]}; set train.compile=false"
            ) from None
        if is_out_of_memory(error):  # in a validation or the optimizer: an update would have gone on in smaller parts
            raise WorkError(
                "not enough memory; close other programs or lower decode.batch_tokens and run the same command to go on, "
                "or train a smaller model under another name"
            ) from None
        raise
    ranks.leave()
    return folder


def _train(run: Run) -> None:
    config, folder = run.config, run.folder
    if _is_finished(run):
        more = "train.patience" if _out_of_patience(run) else "train.max_updates"
        say(f"{folder}: finished at update {run.progress.step:,}; raise {more} to go on, or start over with --fresh")
        return
    _announce(run)
    if run.saved_step is not None and run.progress.best_step == run.progress.step:
        _publish(run, run.weights(), run.progress.best_score)  # killed just before, it was not yet
    run.model.train()
    with Interrupts(say) as interrupts:
        while not _is_done(run):
            _update(run)
            if _due(run, config.train.log_every):
                _log(run)
            if _due(run, config.train.validate_every) or run.progress.step == config.train.max_updates:
                _validate(run)
            if _due(run, config.train.save_every):
                run.save()
            if received := max(run.ranks.gather(int(interrupts.received or 0))):
                _settle(run)
                run.save()
                run.journal.close()
                message = f"stopped at update {run.progress.step:,} and saved; run the same command to go on"
                raise Interrupted(message, received)
        run.save()
        run.journal.close()
    _finish(run)


def _due(run: Run, every: int) -> bool:
    return run.progress.step % every == 0


def _is_done(run: Run) -> bool:
    return run.progress.step >= run.config.train.max_updates or _out_of_patience(run)


def _out_of_patience(run: Run) -> bool:
    patience = run.config.train.patience
    return patience > 0 and run.progress.stale >= patience


def _is_finished(run: Run) -> bool:
    """Whether the end was written too: a run killed while it averages its checkpoints is not finished."""
    written = (run.folder / "finished.json").exists() and (run.folder / "model.safetensors").exists()
    return _is_done(run) and bool(run.ranks.from_first(written))


def _announce(run: Run) -> None:
    config, progress = run.config, run.progress
    if run.ranks.is_first:
        (run.folder / "finished.json").unlink(missing_ok=True)
    run.journal.rewind(progress.step if run.saved_step is not None else -1)
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    precision = str(run.updater.dtype).removeprefix("torch.")
    place = f"{run.ranks.size} x {run.device.type}" if run.ranks.size > 1 else str(run.device)
    say(f"{config.name}: {parameters:,} parameters, {precision} on {place}; run folder {run.folder}")
    if note := tokenised_note([tgt for _, tgt in run.data.valid_text], config.evaluate.tokenize):
        say(note)
    if config.train.save_every > config.train.max_updates:
        say("note: train.save_every is more than train.max_updates; the only checkpoint will be the last")
    run.journal.write(
        "start", step=progress.step, parameters=parameters, precision=precision, device=place, **environment()
    )
    run.journal.open_bar(progress.step, config.train.max_updates)


def _update(run: Run) -> None:
    progress, config = run.progress, run.config.train
    if not run.pending:
        run.pending_since = time.perf_counter()
    batches, rate = run.batches.of_update(), learning_rate(progress.step + 1, config)
    run.pending.append(run.updater.update(batches, rate))
    progress.step += 1
    beats = (config.log_every, config.validate_every, config.save_every, config.max_updates, _READ_EVERY)
    if not _runs_ahead(run.device) or any(_due(run, every) for every in beats):
        _settle(run)


def _runs_ahead(device: torch.device) -> bool:
    """Whether it still computes while the next batch is made; to ask for its numbers after each update would stop both."""
    return device.type != "cpu"


def _settle(run: Run) -> None:
    """Read and count the updates that were not read yet."""
    progress, results = run.progress, [pending.result() for pending in run.pending]
    if not results:
        return
    seconds = time.perf_counter() - run.pending_since
    run.pending.clear()
    progress.spend(seconds)
    for step, result in enumerate(results, start=progress.step - len(results) + 1):
        progress.count(result)
        if result.skipped:
            say(f"update {step:,} was skipped: its gradient is not finite ({progress.skipped:,} so far)")
        if progress.skipped_in_a_row >= MAX_SKIPS:
            raise WorkError(
                f"{MAX_SKIPS} updates in a row had no finite gradient; go on from the last checkpoint with a lower "
                "train.learning_rate, a longer train.warmup or train.precision=fp32"
            )
    last = results[-1]
    ppl = math.exp(min(100.0, last.nll / last.num_tokens)) if not last.skipped else math.nan
    speed = sum(result.num_tokens for result in results) / seconds
    run.journal.advance(progress.step, f"loss {last.loss / last.num_tokens:.3f}, ppl {ppl:.2f}, {speed:,.0f} tok/s")


def _log(run: Run) -> None:
    progress = run.progress
    facts = progress.window.summary()
    rate = learning_rate(progress.step, run.config.train)
    run.journal.write(
        "train",
        step=progress.step,
        epoch=run.batches.epochs,
        tokens=progress.tokens,
        learning_rate=rate,
        skipped=progress.skipped,
        seconds=progress.seconds,
        **facts,
    )
    remaining = (run.config.train.max_updates - progress.step) * progress.seconds / progress.step
    say(
        f"update {progress.step:,}/{run.config.train.max_updates:,}  epoch {run.batches.epochs:.2f}  loss {facts['loss']:.3f}  "
        f"ppl {facts['ppl']:.2f}  lr {rate:.2e}  {facts['tokens_per_second']:,.0f} tokens/s  left {remaining / 60:.0f} min"
    )
    progress.window = Window()


def _validate(run: Run) -> None:
    """Validate; a new best becomes the run's model, and is saved."""
    config, progress = run.config, run.progress
    result = validate(run.whole_model(), run.data, config, run.device, run.ranks)
    if not math.isfinite(result.loss) and config.train.monitor == "loss":
        raise WorkError(
            "the validation loss is not finite; go on from the last checkpoint with a lower train.learning_rate"
        )
    score = result.monitored(config.train.monitor)
    is_best = progress.validated(score)
    _record(run, result, "valid", is_best=is_best)
    if is_best:
        run.save()  # first: a model without a checkpoint could not go on
        _publish(run, run.weights(), score)


def _record(run: Run, result: Validation, event: str, **facts: object) -> None:
    """A validation to the journal, the screen and the report."""
    step = run.progress.step
    run.journal.write(
        event,
        step=step,
        epoch=run.batches.epochs,
        tokens=run.progress.tokens,
        seconds=run.progress.seconds,
        loss=result.loss,
        ppl=result.ppl,
        scores=[vars(score) for score in result.scores],
        samples=result.samples,
        **facts,
    )
    best = "  (best so far)" if facts.get("is_best") else ""
    chrf = result.scores[1].value
    say(
        f"validation at {step:,}: loss {result.loss:.3f}  ppl {result.ppl:.2f}  BLEU {result.bleu:.2f}  chrF {chrf:.2f}{best}"
    )
    for src, reference, translation in result.samples:
        say(f"    {src}\n      is   {reference}\n      got  {translation}")
    if run.ranks.is_first:
        write_report(run.folder, run.config, run.journal.entries(), say)


def _publish(run: Run, weights: checkpoint.Tensors, score: float | None) -> bool:
    """Make these the run's model, unless it has one with a better score: the average of an earlier end, perhaps."""
    if not run.ranks.is_first:
        return False
    config, file = run.config, run.folder / "model.safetensors"
    # Under other settings a score has another meaning, and another name.
    train, rules = config.train, config.evaluate
    name = f"{train.monitor} of {train.validate_sentences}, {rules.tokenize}, lowercase {rules.lowercase}"
    facts = {"config": config.name, "step": str(run.progress.step), name: repr(score)}
    try:
        if score is not None and file.exists() and float(checkpoint.metadata(file).get(name, "-inf")) > score:
            return False
        checkpoint.save_weights(file, weights, facts)
    except CheckpointError as error:
        raise WorkError(f"{error}; make room and run the same command to go on") from None
    return True


def _finish(run: Run) -> None:
    """Average checkpoints; the run's model is the average if it validates at least as well as the best single one."""
    progress, ranks = run.progress, run.ranks
    if progress.best_step is None:  # the last update was reached without a validation: max_updates was lowered
        run.saved_step = None  # its checkpoint has to say so
        _validate(run)
    assert progress.best_step is not None and progress.best_score is not None
    chosen, weights = f"update {progress.best_step:,}", _best_weights(run) if ranks.is_first else {}
    score = progress.best_score
    steps = ranks.from_first(_readable(run) if ranks.is_first else [])
    if len(steps) > 1:
        average = checkpoint.average(map(run.averaging_file, steps)) if ranks.is_first else None
        average = ranks.tensors_from_first(average)
        checkpoint.load_model_weights(run.model, average, "the average")
        result = validate(run.whole_model(), run.data, run.config, run.device, ranks)
        of_average = result.monitored(run.config.train.monitor)
        better = of_average >= score
        _record(run, result, "average", steps=steps, chosen=better)
        if better:
            weights, score = average, of_average
            chosen = f"the average of updates {', '.join(f'{step:,}' for step in steps)}"
    if ranks.is_first and not _publish(run, weights, score):
        chosen = "the model of an earlier end, which was better"
    run.journal.write("end", step=progress.step, seconds=progress.seconds, model=chosen)
    if ranks.is_first:
        write_report(run.folder, run.config, run.journal.entries(), say)
        write_text(run.folder / "finished.json", f'{{"step": {progress.step}}}\n')
    say(f'done: {run.folder} holds {chosen}; try: translate {os.path.relpath(run.folder)} "..."')


def _readable(run: Run) -> list[int]:
    """The steps to average, without those whose weights were damaged since."""
    steps = []
    for step in run.averaged_steps():
        try:
            checkpoint.load_weights(run.averaging_file(step))
            steps.append(step)
        except CheckpointError as error:
            say(f"{error}; the average goes without it")
    return steps


def _best_weights(run: Run) -> dict[str, Tensor]:
    try:
        return checkpoint.load(run.checkpoints / f"step-{run.progress.best_step:08d}").tensors["model"]
    except CheckpointError as error:
        say(f"{error}; keeping the model published when it was the best")
        return checkpoint.load_weights(run.folder / "model.safetensors")
