"""The training loop."""

import math
import time
from contextlib import closing, suppress
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.device import choose_device, is_asynchronous, use_device
from transformer_mt.errors import InputError, Interrupted, WorkError
from transformer_mt.messages import say
from transformer_mt.ranks import Ranks
from transformer_mt.runs.folder import RunFolder
from transformer_mt.training.interrupts import Interrupts, plain_errors
from transformer_mt.training.reporting import announcements
from transformer_mt.training.reporting.announcements import Diverged, check_training_loss, diverged
from transformer_mt.training.setup import open_run
from transformer_mt.training.state.progress import MAX_SKIPS
from transformer_mt.training.state.run import Run
from transformer_mt.training.validate import finish, publish, save, validate_and_publish
from transformer_mt.update.schedule import learning_rate

# Maximum number of updates whose results may still be unread on the device.
_READ_EVERY = 20


def train(config: Config, out: str | Path | None = None, fresh: bool = False) -> Path:
    """Train `config` in its folder, as `transformer_mt.train` does."""
    if not isinstance(config, Config):
        raise InputError(f"train() must get a Config, as load_config(path) returns, but got {config!r}")
    folder = RunFolder(out or Path("runs") / config.name)
    device = choose_device(config.train.device)
    use_device(device)
    ranks = Ranks.join(device)
    try:
        with plain_errors(), closing(open_run(config, folder, fresh, ranks)) as run:
            _train(run)
    except Interrupted:
        ranks.leave()
        raise
    ranks.leave()
    return folder.path


def _train(run: Run) -> None:
    config = run.config
    if _is_finished(run):
        announcements.finished(run)
        return
    _begin(run)
    announcements.start(run)
    if run.saved_step is not None and run.progress.best_step == run.progress.step:
        publish(run, run.weights(), run.progress.best_score, run.progress.best_loss)  # it was killed before
    if run.saved_step is None and config.init_from:
        _validate(run)  # the parent's score: the run never publishes a worse model
    run.model.train()
    with Interrupts() as interrupts:
        while not run.is_done:
            _update(run)
            interrupts.has_work = True
            if _due(run, config.train.log_every):
                announcements.log(run)
                check_training_loss(run)
            if _due(run, config.train.validate_every) or run.progress.step == config.train.max_updates:
                _validate(run)
            if _due(run, config.train.save_every):
                save(run)
            _save_if_asked(run, interrupts)
        save(run)
        run.metrics_log.close_bar()
    if run.is_out_of_patience:
        announcements.early_end(run)
    finish(run)


def _save_if_asked(run: Run, interrupts: Interrupts) -> None:
    """Save after a signal or by time, on all ranks at once. Interrupted after a signal to stop."""
    of_ranks = run.ranks.gather([int(interrupts.received or 0), _must_save(run, interrupts)])
    if any(must_save for _, must_save in of_ranks):
        interrupts.save_requested = False
        _collect_results(run)
        save(run)
        say(f"saved at update {run.progress.step:,}")
    if received := max(signal for signal, _ in of_ranks):
        _collect_results(run)
        save(run)
        run.metrics_log.close_bar()
        message = f"stopped at update {run.progress.step:,} and saved; run the same command to resume"
        raise Interrupted(message, received)


def _validate(run: Run) -> None:
    begun = time.perf_counter()
    try:
        validate_and_publish(run)
    except Diverged:
        raise
    except Exception:  # too little memory to translate, say: the updates before it are not lost
        if run.ranks.size == 1 and run.progress.step:
            with suppress(WorkError):  # a full disk: the error is about it already
                save(run)
        raise
    run.estimate.validated(time.perf_counter() - begun)


def _due(run: Run, every: int) -> bool:
    return run.progress.step % every == 0


def _must_save(run: Run, interrupts: Interrupts) -> bool:
    """True if this rank asks for a checkpoint now: after SIGUSR1, or on rank 0 by time."""
    minutes = run.config.train.save_minutes
    is_old = minutes > 0 and run.ranks.is_rank_zero and time.monotonic() - run.saved_at > 60 * minutes
    return interrupts.save_requested or is_old


def _is_finished(run: Run) -> bool:
    """True if the run was also averaged and published: one killed before that is not finished."""
    return run.is_done and bool(run.ranks.broadcast(run.folder.is_finished))


def _begin(run: Run) -> None:
    """Mark the run as unfinished, and remove from its log what came after the checkpoint."""
    if run.ranks.is_rank_zero:
        run.folder.finished_file.unlink(missing_ok=True)
    run.metrics_log.begin(run.config, run.progress.step if run.saved_step is not None else -1)


def _update(run: Run) -> None:
    progress, config = run.progress, run.config.train
    if not run.pending:
        run.pending_since = time.perf_counter()
    batches, rate = run.batches.next_update(), learning_rate(progress.step + 1, config)
    progress.step += 1
    by_layer = config.log_gradients and _due(run, config.log_every)
    run.pending.append(run.updater.update(batches, rate, by_layer))
    sync_intervals = (
        config.log_every,
        config.validate_every,
        config.save_every,
        config.max_updates,
        _READ_EVERY,
    )
    if run.moving_average is not None:
        run.moving_average.update(progress.step)
    # Reading the loss after each update would wait for the device.
    if not is_asynchronous(run.device) or any(_due(run, every) for every in sync_intervals):
        _collect_results(run)


def _collect_results(run: Run) -> None:
    """Read the results of pending updates from the device, and add them to the progress."""
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
            raise diverged(run, f"the gradient of {MAX_SKIPS} updates in a row is not finite")
    run.estimate.updated(len(results), seconds)
    for line in run.estimate.announcement(progress.step, run.config.train, run.device.type == "cpu"):
        say(line)
    last = run.newest_result = results[-1]
    ppl = math.exp(min(100.0, last.nll / last.num_tokens)) if not last.skipped else math.nan
    speed, left = sum(result.num_tokens for result in results) / seconds, announcements.time_remaining(run)
    run.metrics_log.advance(
        progress.step, f"loss {last.loss / last.num_tokens:.3f}, ppl {ppl:.2f}, {speed:,.0f} tok/s{left}"
    )
