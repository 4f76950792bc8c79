"""The training of one run, from a config to a published model: `train`, then its steps in their order.

`open_run` checks, locks, settles the config, prepares the data and builds the objects; `_train` is the loop;
`finish` is in run/validation.py.
"""

import json
import math
import os
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch
from pydantic import ValidationError

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config
from transformer_mt.config.load import dump_config
from transformer_mt.config.resolve import DataFacts, Known, resolve, updates_of_epochs
from transformer_mt.config.train_section import needs_links
from transformer_mt.corpora.held_out import as_lines, evenly_spaced, held_out_file
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.batches.batching import BatchPrefetcher, TrainingBatches
from transformer_mt.data.changes.change import Change
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.preparation.training_links import import_thot
from transformer_mt.data.vocabulary.given_tokenizer import settle, vocabulary_facts
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.device import choose_device, is_asynchronous, keep_freed_memory, use_device
from transformer_mt.errors import InputError, Interrupted, Setting, WorkError
from transformer_mt.evaluation.metrics import build_bleu
from transformer_mt.files import FolderLock, lock_folder, set_aside, write_text
from transformer_mt.messages import say
from transformer_mt.model.interface import TranslationModel
from transformer_mt.preparation import prepare
from transformer_mt.ranks import Ranks
from transformer_mt.run import log
from transformer_mt.run.batch_budget import find_budget
from transformer_mt.run.config_changes import (
    has_update_size_changed,
    note_changed_update_size,
    part_facts,
    refuse_other_files,
)
from transformer_mt.run.early_checks import (
    check_config,
    check_early,
    check_folder,
    check_writable,
    notes_on,
    notes_on_languages,
    refuse_foreign_tokenizer,
)
from transformer_mt.run.interrupts import Interrupts, plain_errors
from transformer_mt.run.log import Diverged, check_training_loss, diverged
from transformer_mt.run.loggers import MetricsLog
from transformer_mt.run.parent import Parent, note_other_directions, record_seen, seen_before
from transformer_mt.run.progress import MAX_SKIPS, Progress
from transformer_mt.run.run import MovingAverage, Run, model_for
from transformer_mt.run.validation import finish, publish, save, validate_and_publish
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.section import OF_RUN
from transformer_mt.update.build_updater import adapt, build_loss, build_updater
from transformer_mt.update.schedule import learning_rate
from transformer_mt.update.step import Updater

# Maximum number of updates whose results may still be unread on the device.
_READ_EVERY = 20
_SAMPLED_REFERENCES = 1000


def train(config: Config, out: str | Path | None = None, fresh: bool = False) -> Path:
    """Train `config` in its folder, resuming from its newest checkpoint if there is one. Returns the folder.

    Raises InputError before any work, WorkError when the work fails, Interrupted after a signal. With several
    ranks, a process must end after InputError or WorkError: its state differs from its peers'.
    """
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
    # Free DDP before the process group. If DDP is the last that holds the group, it ends gloo's threads while
    # it holds Python's lock, for which one of them may wait.
    del run
    ranks.leave()
    return folder.path


def open_run(config: Config, folder: RunFolder, fresh: bool = False, ranks: Ranks | None = None) -> Run:
    """The run in `folder`, at its newest undamaged checkpoint or at its beginning; `fresh` moves an old run
    aside first.

    Until the config, the device and the data have been checked, the folder is only locked and damaged
    checkpoints in it are set aside; nothing else in it changes. The caller closes the run.
    """
    with ExitStack() as held:
        run = _open_run(config, folder, fresh, ranks or Ranks(), held)
        held.pop_all()  # from here on the run holds the lock and ends the batch thread
    return run


def _open_run(written: Config, folder: RunFolder, fresh: bool, ranks: Ranks, held: ExitStack) -> Run:
    # torchrun restarts its processes with the same command, so `fresh` counts only the first time.
    is_restart = ranks.knows_earlier or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    fresh = fresh and not any(ranks.gather(is_restart))
    # 1. What needs no file, so that a mistake is reported within seconds.
    device, dtype = check_early(written, fresh, ranks)
    check_folder(folder, fresh)
    if ranks.is_rank_zero:
        check_writable(folder.path)
    # 2. Lock an existing folder before a checkpoint is read: loading may set damaged checkpoints aside.
    lock = None
    if ranks.is_rank_zero and folder.path.is_dir() and not fresh:
        lock = held.enter_context(lock_folder(folder.path))
    # 3. The checkpoint before the data, because its tokenizer prepares the data.
    saved = None if fresh else _newest(folder, ranks)
    if isinstance(written.init_from, str) and Path(written.init_from).resolve() == folder.path.resolve():
        raise InputError(
            f"`init_from` must be another run, but is {folder}, this run's own folder; train under another "
            "name"
        )
    parts = part_facts(written)
    if saved is not None:
        refuse_other_files(saved.state.get("parts", {}), parts, folder)
    if not folder.is_finished:
        build_loss(written.train).check(written)
    if saved is None and needs_links(written) and not written.train.guided_alignment.files:
        import_thot()
    parent = Parent.of(written, ranks) if saved is None else None
    before = _config_of(saved, folder) if saved is not None else None
    if parent is not None:
        note_other_directions(written, parent)
    # 4. The config and the data before the folder is created or moved: most mistakes are found here.
    known, config, tokenizer = settle(
        written,
        Known(before, parent.config if parent else None),
        folder.tokenizer() if saved else None,
        parent.folder.tokenizer() if parent else None,
    )
    seen = seen_before(written, folder, parent.folder if parent else None, saved is not None)
    check_config(config, before, folder, fresh)
    data = prepare_data(config, tokenizer, seen.inherited, saved, device, ranks)
    if saved is None and not fresh:
        refuse_foreign_tokenizer(folder, data.tokenizer)
    facts, vocabulary = data_facts(config, data, device), vocabulary_facts(data.tokenizer)
    config = resolve(written, known := replace(known, data=facts, vocabulary=vocabulary))
    if config.train.batch_tokens == "auto":
        known = replace(known, batch_tokens=fitting_tokens(config, data, device, ranks))
        config = resolve(written, known)
    batches, progress = open_batches(config, data, saved, device, ranks)
    held.callback(batches.close)
    if config.train.max_epochs:
        config = resolve(written, replace(known, last_update=last_update(config, batches, progress)))
    for note in notes_on(written, config, data):
        say(note)
    if saved is None and ranks.is_rank_zero:
        for note in notes_on_languages(config.data):
            say(note)
    # 5. With `fresh` the lock is taken after the old folder was moved.
    if ranks.is_rank_zero and lock is None:
        lock = held.enter_context(_create_folder(folder.path, fresh))
        if checkpoint.all_checkpoints(folder.checkpoints):
            raise InputError(
                f"{folder}: another process trained in it meanwhile; run the same command to resume"
            )
    # 6. The objects, and last the checkpoint's state in them.
    has_ended = progress.is_out_of_patience(config.train.patience)
    left = 0 if has_ended else config.train.max_updates - progress.step
    model, updater = _network(config, data, device, dtype, ranks, parent, left)
    run = Run(
        config=config,
        folder=folder,
        data=data,
        device=device,
        model=model,
        updater=updater,
        batches=batches,
        progress=progress,
        parts=parts,
        metrics_log=MetricsLog(folder, active=ranks.is_rank_zero, loggers=config.train.loggers),
        ranks=ranks,
        lock=lock,
        moving_average=MovingAverage(model, config.train.ema_decay)
        if config.train.average == "ema"
        else None,
    )
    if saved is not None:
        run.restore(saved)
        step, train = run.progress.step, run.config.train
        say(f"resuming from {saved.path}: update {step:,} of {train.max_updates:,}")
        planned = learning_rate(max(1, step), _config_of(saved, folder).train)
        rate = learning_rate(max(1, step), train)
        if abs(rate - planned) > 0.01 * planned:
            say(f"the learning rate goes on at {rate:.2e}, not at {planned:.2e}: its schedule has changed")
    if ranks.is_rank_zero:
        if saved is None:
            data.tokenizer.save(folder.path)
            folder.frozen_file.unlink(missing_ok=True)  # of a training that ended before its first checkpoint
        if parent is not None:
            parent.record(folder)
        _write_facts(data, folder)
        record_seen(config, data, folder, seen)
        write_text(folder.config_file, dump_config(_config_to_keep(run), comments=True))
    return run


def _newest(folder: RunFolder, ranks: Ranks) -> Checkpoint | None:
    """The newest undamaged checkpoint; rank 0 finds it, because it sets damaged ones aside."""
    saved = folder.newest_checkpoint() if ranks.is_rank_zero else None
    path = ranks.broadcast(saved and str(saved.path))
    if ranks.is_rank_zero or path is None:
        return saved
    if not Path(path).exists():
        raise InputError(f"{path}: every machine must see the run's folder, but rank {ranks.rank} does not")
    return checkpoint.load(Path(path))


def _config_of(saved: Checkpoint, folder: RunFolder) -> Config:
    try:
        return Config.model_validate(saved.state["config"], context=OF_RUN)
    except ValidationError as error:
        first = error.errors()[0]
        what = f"`{'.'.join(map(str, first['loc']))}`" if first["loc"] else f"config ({first['msg']})"
        raise InputError(
            f"{folder}: was trained by another version, whose {what} this one does not read; resume with "
            "that version, or start over with ", Setting("fresh", True),
        ) from None  # fmt: skip


def prepare_data(
    config: Config,
    tokenizer: Tokenizer | None,
    inherited: Sentences,
    saved: Checkpoint | None,
    device: torch.device,
    ranks: Ranks,
) -> PreparedData:
    """The encoded pairs. InputError if they differ between ranks or from the data of the checkpoint `saved`,
    or if the monitor cannot be computed.
    """
    with ranks.local_rank_zero_first():
        data = prepare(config, tokenizer, inherited)
    if len(set(ranks.gather(data.fingerprint))) > 1:
        raise InputError(
            "the machines prepared different data; set TRANSFORMER_MT_CACHE to a folder that all of them "
            "can see"
        )
    chosen = config.train.monitor_set
    deciding = [valid for valid in data.valid if chosen in ("mean", valid.name)]
    if config.train.monitor == "loss" and not all(len(valid.pairs) for valid in deciding):
        raise InputError(
            f"data.valid must have texts of at most data.max_length ({config.data.max_length}) tokens for "
            "train.monitor: loss, but has none"
        )
    if saved is not None and saved.state["data_fingerprint"] != data.fingerprint:
        before = Config.model_validate(saved.state["config"], context=OF_RUN)
        has_other_tests = before.data.test != config.data.test
        what = "the test sets, which training leaves out," if has_other_tests else ""
        links = ", or what train.guided_alignment adds to them," * (config.train.guided_alignment.weight > 0)
        what = what or f"the training or validation data{links}"
        raise InputError(
            f"{saved.path.parent.parent}: {what} changed since this run "
            "began; restore the old data, or start over with ", Setting("fresh", True),
        )  # fmt: skip
    if device.type == "cpu":
        keep_freed_memory()  # before the memory is measured
    return data


def data_facts(config: Config, data: PreparedData, device: torch.device) -> DataFacts:
    """The facts that settle keys of the config."""
    tokens = references = 0.0
    for valid in data.valid if config.train.monitor == "BLEU" else ():
        texts = [
            text for _, targets in evenly_spaced(valid.sentences, _SAMPLED_REFERENCES) for text in targets
        ]
        bleu = build_bleu(valid.languages[1], config.evaluate.tokenize, lowercase=False)
        tokens, references = tokens + bleu.mean_length(texts) * len(texts), references + len(texts)
    mean = tokens / max(1.0, references) if config.train.monitor == "BLEU" else math.inf
    return DataFacts(data.several_sentences, mean, is_on_gpu=device.type == "cuda")


def fitting_tokens(config: Config, data: PreparedData, device: torch.device, ranks: Ranks) -> int:
    """The most tokens of a batch that fit the device of every rank."""
    tokens = min(ranks.gather(find_budget(config, data, device)))
    say(f"train.batch_tokens: auto is {tokens:,} here; config.yaml in the run's folder holds the number")
    return tokens


def open_batches(
    config: Config, data: PreparedData, saved: Checkpoint | None, device: torch.device, ranks: Ranks
) -> tuple[BatchPrefetcher, Progress]:
    """The batches of the training and its progress, as in the checkpoint `saved` if there is one."""
    train, mixture, progress = config.train, data.mixture(config), Progress()
    rows = data.rows(config, mixture)
    shape = None
    if train.packed is True:
        # A change makes other rows in each epoch, so that the longest of one epoch is no limit for the next.
        longest = config.data.max_length if isinstance(rows, Change) else data.longest
        shape = data.shape(train.update_tokens or int(train.batch_tokens), longest)
    plan = TrainingBatches(
        rows,
        int(train.batch_tokens),
        config.seed,
        ranks.rank,
        ranks.size,
        mixture,
        train.update_tokens,
        shape,
    )
    own_process = device.type == "cuda" and config.tokenizer.bpe_dropout > 0
    batches = BatchPrefetcher(plan, train.accumulate, device, own_process)
    if saved is not None:
        batches.load_state_dict(saved.state["batches"])
        progress.load_state_dict(saved.state["progress"])
        saved_batches = saved.state.get("batches_per_update")
        if saved_batches is not None and has_update_size_changed(saved_batches, train, ranks):
            note_changed_update_size(saved_batches, train, ranks)
            progress.resized_at_step, progress.resized_at_epoch = progress.step, batches.epochs
    return batches, progress


def last_update(config: Config, batches: BatchPrefetcher, progress: Progress) -> int:
    """The update at which `train.max_epochs` epochs are complete. Epochs before a change of the update size
    had a different number of updates.
    """
    epochs = config.train.max_epochs - progress.resized_at_epoch
    return progress.resized_at_step + updates_of_epochs(epochs, batches.updates_per_epoch)


def _create_folder(folder: Path, fresh: bool) -> FolderLock:
    """Create the run's folder and lock it; with `fresh` an old one is moved aside first."""
    if fresh and folder.is_dir():
        say(f"the old run is now {set_aside(folder)}")
    folder.mkdir(parents=True, exist_ok=True)
    return lock_folder(folder)


def _network(
    config: Config,
    data: PreparedData,
    device: torch.device,
    dtype: torch.dtype,
    ranks: Ranks,
    parent: Parent | None,
    updates_left: int,
) -> tuple[TranslationModel, Updater]:
    """The model at update 0 and its updater."""
    torch.manual_seed(config.seed)
    model = model_for(config, data.tokenizer)
    if parent is not None:
        parent.give_weights(model, config, data.tokenizer)
    adapt(model, config.train)
    model = model.to(device)
    updater = build_updater(config, model, device, dtype, ranks, updates_left=updates_left)
    if not ranks.is_rank_zero:
        torch.manual_seed(config.seed + ranks.rank)  # equal weights on each rank, but different dropout
    return model, updater


def _write_facts(data: PreparedData, folder: RunFolder) -> None:
    """Write what became of the corpora, and the sets held out of them: `evaluate` needs them later."""
    corpora = [
        {**asdict(corpus), "uses_per_epoch": weight} for corpus, weight in zip(data.corpora, data.weights)
    ]
    write_text(folder.corpora_file, json.dumps(corpora, indent=1, ensure_ascii=False) + "\n")
    for name, pairs in data.held_out.items():
        write_text(held_out_file(folder.path, name), as_lines(pairs))


def _config_to_keep(run: Run) -> Config:
    """The config to save. A finished run keeps the settings that trained it, because it trains no further."""
    config, folder = run.config, run.folder
    if not (run.is_done and folder.is_finished and folder.config_file.exists()):
        return config
    kept = folder.config()
    train = kept.train.model_copy(update={"export": config.train.export})
    data = kept.data.model_copy(update={"test": config.data.test})
    changes = {"train": train, "data": data, "decode": config.decode, "evaluate": config.evaluate}
    return kept.model_copy(update=changes)


def _train(run: Run) -> None:
    """The loop, from the first update that is left to the published model."""
    config, progress = run.config.train, run.progress
    # 1. A run that was averaged and published is done; one killed before that is not.
    if run.is_done and bool(run.ranks.broadcast(run.folder.is_finished)):
        log.finished(run)
        return
    # 2. Mark the run as unfinished, and remove from its log what came after the checkpoint.
    if run.ranks.is_rank_zero:
        run.folder.finished_file.unlink(missing_ok=True)
    run.metrics_log.begin(run.config, progress.step if run.saved_step is not None else -1)
    log.start(run)
    if run.saved_step is not None and progress.best_step == progress.step:
        publish(run, run.weights(), progress.best_score, progress.best_loss)  # it was killed before
    if run.saved_step is None and run.config.init_from:
        _validate(run)  # the parent's score: the run never publishes a worse model
    run.model.train()
    with Interrupts() as interrupts:
        # 3. Update. Once in a while: log, validate, save.
        while not run.is_done:
            _update(run)
            interrupts.has_work = True
            if _due(run, config.log_every):
                log.updates(run)
                check_training_loss(run)
            if _due(run, config.validate_every) or progress.step == config.max_updates:
                _validate(run)
            if _due(run, config.save_every):
                save(run)
            _save_if_asked(run, interrupts)
        save(run)
        run.metrics_log.close_bar()
    if run.is_out_of_patience:
        log.early_end(run)
    # 4. Average, choose and publish the model, and write the report.
    finish(run)


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
    run.energy.update()
    for line in run.estimate.announcement(progress.step, run.config.train, run.device.type == "cpu"):
        say(line)
    run.newest_result = results[-1]
    speed = sum(result.num_tokens for result in results) / seconds
    run.metrics_log.advance(progress.step, log.beside_bar(run, run.newest_result, speed))


def _due(run: Run, every: int) -> bool:
    return run.progress.step % every == 0


def _validate(run: Run) -> None:
    begun = time.perf_counter()
    try:
        validate_and_publish(run)
    except Diverged:
        raise
    except Exception:  # such as too little memory to translate: save, so that no updates are lost
        if run.ranks.size == 1 and run.progress.step:
            with suppress(WorkError):  # the disk may be full, which the first error already says
                save(run)
        raise
    run.estimate.validated(time.perf_counter() - begun)


def _save_if_asked(run: Run, interrupts: Interrupts) -> None:
    """Save after a signal or by time, on all ranks at once. Interrupted after a signal to stop."""
    minutes = run.config.train.save_minutes
    is_old = minutes > 0 and run.ranks.is_rank_zero and time.monotonic() - run.saved_at > 60 * minutes
    must_save = interrupts.save_requested or is_old  # after SIGUSR1, or by time
    of_ranks = run.ranks.gather([int(interrupts.received or 0), must_save])
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


def prepared(config: Config) -> tuple[Config, PreparedData]:
    """Prepare the data as a training does, or find them prepared. Returns also the config with the keys that
    its parent or its vocabulary decides.
    """
    parent = Parent.of(config)
    known = Known(parent=parent.config if parent else None)
    _, config, tokenizer = settle(config, known, parent=parent.folder.tokenizer() if parent else None)
    folder = parent.folder if parent else None
    seen = seen_before(config, RunFolder(""), folder, is_resumed=False)
    return config, prepare(config, tokenizer, seen.inherited)
