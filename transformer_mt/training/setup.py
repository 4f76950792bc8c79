"""Open a run: from a config and a folder to everything that training needs."""

import json
import os
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

import torch
from pydantic import ValidationError

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config
from transformer_mt.config.dump import dump_config
from transformer_mt.config.guided_alignment import needs_links
from transformer_mt.config.resolve import Known, resolve
from transformer_mt.corpora.held_out import as_lines, held_out_file
from transformer_mt.data.alignment.aligner import import_thot
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.given_tokenizer import settle, vocabulary_facts
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.locks import FolderLock, lock_folder, set_aside
from transformer_mt.messages import say
from transformer_mt.model.interface import TranslationModel
from transformer_mt.ranks import Ranks
from transformer_mt.runs.folder import RunFolder
from transformer_mt.settings.section import OF_RUN
from transformer_mt.training.early_checks import (
    check_config,
    check_early,
    check_folder,
    check_writable,
    notes_on,
    refuse_foreign_tokenizer,
)
from transformer_mt.training.reporting.announcements import MetricsLog
from transformer_mt.training.run_data import (
    data_facts,
    fitting_tokens,
    last_update,
    open_batches,
    prepare_data,
)
from transformer_mt.training.state.averaging import MovingAverage
from transformer_mt.training.state.config_changes import part_facts, refuse_other_files
from transformer_mt.training.state.parent import Parent, note_other_directions, record_seen, seen_before
from transformer_mt.training.state.run import Run, model_for
from transformer_mt.update.adaptation import adapt
from transformer_mt.update.build_updater import build_loss, build_updater
from transformer_mt.update.schedule import learning_rate
from transformer_mt.update.step import Updater


def open_run(config: Config, folder: RunFolder, fresh: bool = False, ranks: Ranks | None = None) -> Run:
    """The run in `folder`, at its newest undamaged checkpoint or at its beginning; `fresh` moves an old run
    aside first.

    Before the config, the device and the data are found good, the folder is locked and damaged checkpoints
    in it are set aside; nothing else of it changes. The caller closes the run.
    """
    with ExitStack() as held:
        run = _open_run(config, folder, fresh, ranks or Ranks(), held)
        held.pop_all()  # from here on the run holds the lock and ends the batch thread
    return run


def _open_run(written: Config, folder: RunFolder, fresh: bool, ranks: Ranks, held: ExitStack) -> Run:
    # torchrun starts its processes again by the same command: only the first time is `fresh`.
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
    # 5. With `fresh` the lock is taken after the old folder was moved.
    if ranks.is_rank_zero and lock is None:
        lock = held.enter_context(_create_folder(folder.path, fresh))
        if checkpoint.all_checkpoints(folder.checkpoints):
            raise InputError(
                f"{folder}: must be new, but another process trained in it meanwhile; run the same command "
                "to resume"
            )
    # 6. The objects, and last the checkpoint's state in them.
    is_stale = 0 < config.train.patience <= progress.stale
    left = 0 if is_stale else config.train.max_updates - progress.step
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


def _create_folder(folder: Path, fresh: bool) -> FolderLock:
    """Create the run's folder and lock it; with `fresh` an old one is moved aside first."""
    if fresh and folder.is_dir():
        say(f"the old run is now {set_aside(folder)}")
    folder.mkdir(parents=True, exist_ok=True)
    return lock_folder(folder)


def _write_facts(data: PreparedData, folder: RunFolder) -> None:
    """Write what became of the corpora, and the sets held out of them: `evaluate` needs them later."""
    corpora = [
        {**asdict(corpus), "uses_per_epoch": weight} for corpus, weight in zip(data.corpora, data.weights)
    ]
    write_text(folder.corpora_file, json.dumps(corpora, indent=1, ensure_ascii=False) + "\n")
    for name, pairs in data.held_out.items():
        write_text(held_out_file(folder.path, name), as_lines(pairs))


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


def _newest(folder: RunFolder, ranks: Ranks) -> Checkpoint | None:
    """The newest undamaged checkpoint; rank 0 finds it, because it sets damaged ones aside."""
    saved = folder.newest_checkpoint() if ranks.is_rank_zero else None
    path = ranks.broadcast(saved and str(saved.path))
    if ranks.is_rank_zero or path is None:
        return saved
    if not Path(path).exists():
        raise InputError(f"{path}: every machine must see the run's folder, but rank {ranks.rank} does not")
    return checkpoint.load(Path(path))
