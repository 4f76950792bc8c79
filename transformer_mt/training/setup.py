"""Open a run: from a config and a folder to everything that training needs."""

import json
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile

import torch
from pydantic import ValidationError

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config
from transformer_mt.config.dump import dump_config
from transformer_mt.config.inherit import inherit, with_keys_of
from transformer_mt.config.language import check_language
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.epoch_pairs import epoch_pairs
from transformer_mt.data.batches.mixture import Mixture
from transformer_mt.data.batches.prefetch import BatchPrefetcher
from transformer_mt.data.corpora.held_out import as_lines, held_out_file
from transformer_mt.data.preparation.prepare import PreparedData, help_prepare, prepare
from transformer_mt.data.vocabulary.given_tokenizer import config_from_tokenizer, given_tokenizer
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, tokenizer_files
from transformer_mt.device import keep_freed_memory
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.locks import FolderLock, lock_folder, set_aside
from transformer_mt.runs.folder import RunFolder
from transformer_mt.text.languages import base_code, is_natural
from transformer_mt.training.batch_budget import find_budget
from transformer_mt.training.early_checks import check_early
from transformer_mt.training.parallel.distributed import Ranks
from transformer_mt.training.reporting.metrics_log import MetricsLog, say_on_rank_zero
from transformer_mt.training.state.config_changes import resumed_config
from transformer_mt.training.state.parent import Parent
from transformer_mt.training.state.progress import Progress
from transformer_mt.training.state.run import Run, model_for
from transformer_mt.training.update.build import build_updater
from transformer_mt.translation.pair_log_probs import forget_models, log_probs

# If at least this fraction of the training sources has several sentences, the model has learnt to translate
# several sentences at once.
_SEVERAL_SENTENCES = 0.2


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


def _open_run(config: Config, folder: RunFolder, fresh: bool, ranks: Ranks, held: ExitStack) -> Run:
    # 1. What needs no file, so that a mistake is reported within seconds.
    device, dtype = check_early(config, fresh, ranks)
    _check_folder(folder, fresh)
    if ranks.is_rank_zero:
        _check_writable(folder.path)
    # 2. Lock an existing folder before a checkpoint is read: loading may set damaged checkpoints aside.
    lock = None
    if ranks.is_rank_zero and folder.path.is_dir() and not fresh:
        lock = held.enter_context(lock_folder(folder.path))
    # 3. The checkpoint before the data, because its tokenizer prepares the data.
    saved = None if fresh else _newest(folder, ranks)
    if config.init_from and Path(config.init_from).resolve() == folder.path.resolve():
        raise InputError(
            f"`init_from` must be another run, but is {folder}, this run's own folder; train under another "
            "name"
        )
    parent = Parent.open(RunFolder(config.init_from)) if config.init_from and saved is None else None
    config = _check_config(config, saved, parent, folder, fresh)
    tokenizer = folder.tokenizer() if saved is not None else given_tokenizer(config)
    if tokenizer is not None and config.tokenizer.file:
        config = config_from_tokenizer(config, tokenizer)
    # 4. The data before the folder is created or moved: most mistakes are found here.
    data = _prepare_data(config, tokenizer, ranks)
    if saved is None and not fresh:
        _refuse_foreign_tokenizer(folder, data.tokenizer)
    config = _without_auto(config, data, device, ranks)
    # 5. With `fresh` the lock is taken after the old folder was moved.
    if ranks.is_rank_zero and lock is None:
        lock = held.enter_context(_create_folder(folder.path, fresh))
        if checkpoint.all_checkpoints(folder.checkpoints):
            raise InputError(
                f"{folder}: must be new, but another process trained in it meanwhile; run the same command "
                "to resume"
            )
    # 6. The objects, and last the checkpoint's state in them.
    run = _build(config, folder, data, device, dtype, ranks, lock, parent)
    held.callback(run.batches.close)
    if saved is None:
        run.limit_epochs()
    else:
        run.restore(saved)
        say_on_rank_zero(
            f"resuming from {saved.path}: update {run.progress.step:,} of {run.config.train.max_updates:,}"
        )
    if ranks.is_rank_zero:
        if saved is None:
            data.tokenizer.save(folder.path)
        if parent is not None:
            parent.record(folder)
        _write_facts(data, folder)
        write_text(folder.config_file, dump_config(run.config, comments=True))
    return run


def _check_folder(folder: RunFolder, fresh: bool) -> None:
    """InputError if the folder is a file, or with `fresh` if it has files and is not that of a run."""
    if not folder.path.exists():
        return
    if not folder.path.is_dir():
        raise InputError(f"{folder}: must be the run's folder, but is a file")
    # What `inspect` wrote before the first training may be moved, too.
    has_files = any(not path.name.startswith((".", "inspect.")) for path in folder.path.iterdir())
    if fresh and not folder.is_run and has_files:
        raise InputError(
            f"{folder}: must be a run's folder to be moved aside, but has files and no config.yaml; train "
            "under another name"
        )


def _check_writable(folder: Path) -> None:
    """InputError if the folder, or the nearest one above it that exists, takes no file."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise InputError(
            f"{folder}: must be a folder that can be written to, but {nearest} is not ({error.strerror}); ",
            "name another with ", Setting("out"),
        ) from None  # fmt: skip


def _check_config(
    config: Config, saved: Checkpoint | None, parent: Parent | None, folder: RunFolder, fresh: bool
) -> Config:
    """The config that training continues with; InputError if it does not fit the checkpoint or the parent."""
    if saved is not None:
        old = _config_of(saved, folder)
        if config.init_from:  # the run has its own copy of the parent's keys
            config = with_keys_of(config, old, ("model", "tokenizer"))
        elif config.tokenizer.file:
            config = with_keys_of(config, old, ("tokenizer",))
        config = resumed_config(old, config, folder)
    else:
        for code in dict.fromkeys(code for direction in config.data.directions for code in direction):
            check_language(code)  # not in the config's types: what was trained with another remains usable
        if not fresh and folder.weights_file.exists():
            raise InputError(
                f"{folder}: must hold the checkpoints of its model to be resumed, but holds none; start ",
                "over with ", Setting("fresh", True), ", which moves it aside, or train under another name",
            )  # fmt: skip
        if parent is not None:
            _note_other_directions(config, parent)
            config = inherit(config, parent.config)
    if config.train.parallel == "fsdp" and config.train.batch_tokens == "auto":
        raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")
    return config


def _note_other_directions(config: Config, parent: Parent) -> None:
    """Say so if the run translates nothing that its parent does; that is rarely meant."""
    mine, theirs = (
        {(base_code(source), base_code(target)) for source, target in each.data.directions}
        for each in (config, parent.config)
    )
    if not mine & theirs:
        of_parent, own = (
            ", ".join(f"{source} to {target}" for source, target in sorted(each)) for each in (theirs, mine)
        )
        say_on_rank_zero(f"note: {parent.folder} translates {of_parent}, and this run {own}")


def _refuse_foreign_tokenizer(folder: RunFolder, tokenizer: Tokenizer) -> None:
    """InputError if the new run would overwrite a vocabulary that the user put into its folder."""
    there = [file for file in tokenizer_files(folder.path) if file.exists()]
    if there and not folder.config_file.exists() and there[0].read_bytes() not in tokenizer.models:
        raise InputError(
            f"{there[0]}: a new run's folder must not hold a vocabulary, which it would overwrite; to train "
            "with it, put it elsewhere and name it in `tokenizer.file`"
        )


def _prepare_data(config: Config, tokenizer: Tokenizer | None, ranks: Ranks) -> PreparedData:
    """The encoded pairs; InputError unless all ranks have the same and the monitor can be computed."""
    helping = help_prepare(config, tokenizer) if ranks.local_rank else nullcontext()
    with helping, ranks.local_rank_zero_first():
        data = prepare(config, say_on_rank_zero, tokenizer, log_probs)
    forget_models()
    if len(set(ranks.gather(data.fingerprint))) > 1:
        raise InputError(
            "every machine must prepare the same data, but they differ; set TRANSFORMER_MT_CACHE to a "
            "folder all of them see"
        )
    chosen = config.train.monitor_set
    deciding = [each for each in data.valid if chosen in ("mean", each.name)]
    if config.train.monitor == "loss" and not all(len(each.pairs) for each in deciding):
        raise InputError("train.monitor must be BLEU, as no validation pair fits a batch, but is loss")
    return data


def _without_auto(config: Config, data: PreparedData, device: torch.device, ranks: Ranks) -> Config:
    """The config with the values found for `auto`; config.yaml in the run's folder keeps them."""
    if device.type == "cpu":
        keep_freed_memory()  # before the memory is measured
    return _with_sentence_splitting(_with_budget(config, data, device, ranks), data)


def _create_folder(folder: Path, fresh: bool) -> FolderLock:
    """Create the run's folder and lock it; with `fresh` an old one is moved aside first."""
    if fresh and folder.is_dir():
        say_on_rank_zero(f"the old run is now {set_aside(folder)}")
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


def _build(
    config: Config, folder: RunFolder, data: PreparedData, device: torch.device, dtype: torch.dtype,
    ranks: Ranks, lock: FolderLock | None, parent: Parent | None,
) -> Run:  # fmt: skip
    """The run at update 0: model, optimizer, batches."""
    train = config.train
    torch.manual_seed(config.seed)
    model = model_for(config, data.tokenizer)
    if parent is not None:
        parent.give_weights(model)
    model = model.to(device)
    updater = build_updater(config, model, device, dtype, ranks, say_on_rank_zero)
    if not ranks.is_rank_zero:
        torch.manual_seed(config.seed + ranks.rank)  # equal weights on each rank, but different dropout
    plan = TrainingBatches(
        data.train,
        int(train.batch_tokens),
        config.seed,
        ranks.rank,
        ranks.size,
        epoch_pairs(config, data.train, data.sizes, data.tokenizer),
        Mixture(data.sizes, data.weights, config.seed),
        train.update_tokens,
    )
    return Run(
        config=config,
        folder=folder,
        data=data,
        device=device,
        model=model,
        updater=updater,
        batches=BatchPrefetcher(plan, train.accumulate, device),
        progress=Progress(),
        metrics_log=MetricsLog(folder, active=ranks.is_rank_zero, loggers=train.loggers),
        ranks=ranks,
        lock=lock,
    )


def _config_of(saved: Checkpoint, folder: RunFolder) -> Config:
    try:
        return Config.model_validate(saved.state["config"])
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{folder}: was trained by another version, whose `{key}` this one does not read; resume with "
            "that version, or start over with ", Setting("fresh", True),
        ) from None  # fmt: skip


def _newest(folder: RunFolder, ranks: Ranks) -> Checkpoint | None:
    """The newest undamaged checkpoint; rank 0 finds it, because it sets damaged ones aside."""
    saved = folder.newest_checkpoint(say_on_rank_zero) if ranks.is_rank_zero else None
    path = ranks.broadcast(saved and str(saved.path))
    if ranks.is_rank_zero or path is None:
        return saved
    if not Path(path).exists():
        raise InputError(f"{path}: every machine must see the run's folder, but rank {ranks.rank} does not")
    return checkpoint.load(Path(path))


def _with_sentence_splitting(config: Config, data: PreparedData) -> Config:
    """The config with true or false where `decode.split_sentences` is auto: translation needs no training
    data then.
    """
    if config.decode.split_sentences != "auto":
        return config
    is_single = data.several_sentences < _SEVERAL_SENTENCES and is_natural(config.data.source_lang)
    found = {"split_sentences": is_single}
    return config.model_copy(update={"decode": config.decode.model_copy(update=found)})


def _with_budget(config: Config, data: PreparedData, device: torch.device, ranks: Ranks) -> Config:
    """The config with a number where `train.batch_tokens` is auto."""
    if config.train.batch_tokens != "auto":
        return config
    tokens = min(ranks.gather(find_budget(config, data, device)))
    say_on_rank_zero(
        f"train.batch_tokens: auto is {tokens:,} here; config.yaml in the run's folder holds the number"
    )
    return config.model_copy(update={"train": config.train.model_copy(update={"batch_tokens": tokens})})
