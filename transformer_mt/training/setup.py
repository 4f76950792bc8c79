"""Open a run: from a config and a folder to everything that training needs."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from pydantic import ValidationError

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config, DataConfig
from transformer_mt.config.dump import dump_config
from transformer_mt.config.parts.language import check_language
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.epoch_pairs import epoch_pairs
from transformer_mt.data.batches.mixture import Mixture
from transformer_mt.data.batches.prefetch import BatchPrefetcher
from transformer_mt.data.cleaning.drop_reasons import EMPTY, LONG, RATIO, length_reason
from transformer_mt.data.corpora.held_out import as_lines, held_out_file
from transformer_mt.data.corpora.scored_sentences import ScoredSentences, keys_of
from transformer_mt.data.preparation.first_pass import evaluation_keys
from transformer_mt.data.preparation.prepare import PreparedData, ValidationSet, help_prepare, prepare
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, tokenizer_files
from transformer_mt.device import keep_freed_memory
from transformer_mt.errors import InputError, Setting
from transformer_mt.evaluation.sacrebleu_metrics import build_bleu
from transformer_mt.files import write_text
from transformer_mt.locks import FolderLock, lock_folder, set_aside
from transformer_mt.messages import messages_to, say
from transformer_mt.model.interface import TranslationModel
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.resolve import Origin, resolve, updates_of_epochs
from transformer_mt.text.languages import base_code
from transformer_mt.text.normalization import changed_by_nfkc
from transformer_mt.training.batch_budget import find_budget
from transformer_mt.training.early_checks import check_early
from transformer_mt.training.parallel.distributed import Ranks
from transformer_mt.training.reporting.metrics_log import MetricsLog
from transformer_mt.training.state.config_changes import (
    is_other_update_size,
    note_other_update_size,
    report_changes,
)
from transformer_mt.training.state.parent import Parent
from transformer_mt.training.state.progress import Progress
from transformer_mt.training.state.run import Run, model_for
from transformer_mt.training.update.build import build_updater
from transformer_mt.training.update.step import Updater
from transformer_mt.translation.pair_log_probs import forget_models, log_probs

_SAMPLED_REFERENCES = 1000


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
    before = _config_of(saved, folder) if saved is not None else None
    if parent is not None:
        _note_other_directions(config, parent)
    # 4. The config and the data before the folder is created or moved: most mistakes are found here.
    origin = Origin(before, folder.tokenizer() if saved else None, parent.config if parent else None)
    inherited = _inherited(folder, parent, saved is not None)
    prepared = _Preparation(folder, fresh, saved, before, device, ranks, inherited or frozenset())
    held.callback(prepared.close)
    asked, config = config, resolve(config, origin, prepared)
    data, batches = prepared.data, prepared.batches(config)
    for note in _notes(asked, config, data):
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
    model, updater = _network(config, data, device, dtype, ranks, parent)
    run = Run(
        config=config,
        folder=folder,
        data=data,
        device=device,
        model=model,
        updater=updater,
        batches=batches,
        progress=prepared.progress,
        metrics_log=MetricsLog(folder, active=ranks.is_rank_zero, loggers=config.train.loggers),
        ranks=ranks,
        lock=lock,
    )
    if saved is not None:
        run.restore(saved)
        say(f"resuming from {saved.path}: update {run.progress.step:,} of {run.config.train.max_updates:,}")
    if ranks.is_rank_zero:
        if saved is None:
            data.tokenizer.save(folder.path)
        if parent is not None:
            parent.record(folder)
        _write_facts(data, folder)
        if saved is None:
            _scored_sentences(config, data, inherited).write(folder.scored_file)
        write_text(folder.config_file, dump_config(run.config, comments=True))
    return run


class _Preparation:
    """The data of a run and its position in them, as `resolve` asks for them."""

    def __init__(
        self,
        folder: RunFolder,
        fresh: bool,
        saved: Checkpoint | None,
        before: Config | None,
        device: torch.device,
        ranks: Ranks,
        left_out: frozenset[int],
    ) -> None:
        """`before` is the config of the checkpoint that is resumed; training pairs with a source whose key is
        among those `left_out` are dropped.
        """
        self._left_out = left_out
        self._folder, self._fresh, self._saved, self._before = folder, fresh, saved, before
        self._device, self._ranks = device, ranks
        self.data: PreparedData
        self.progress = Progress()
        self._batches: BatchPrefetcher | None = None

    def prepare(self, config: Config, tokenizer: Tokenizer | None) -> None:
        """Check the config, then prepare its data. InputError if the data do not fit it or the checkpoint."""
        _check_config(config, self._before, self._folder, self._fresh)
        self.data = _prepare_data(config, tokenizer, self._ranks, self._left_out)
        if self._saved is None and not self._fresh:
            _refuse_foreign_tokenizer(self._folder, self.data.tokenizer)
        if self._saved is not None and self._saved.state["data_fingerprint"] != self.data.fingerprint:
            raise InputError(
                f"{self._folder}: the training or validation data changed since this run began; ",
                "bring the old data back, or start over with ", Setting("fresh", True),
            )  # fmt: skip
        if self._device.type == "cpu":
            keep_freed_memory()  # before the memory is measured

    @property
    def several_sentences(self) -> float:
        return self.data.several_sentences

    def reference_tokens(self, config: Config) -> float:
        tokens = references = 0.0
        for valid in self.data.valid:
            texts = [text for _, targets in valid.sentences[:_SAMPLED_REFERENCES] for text in targets]
            bleu = build_bleu(valid.languages[1], config.evaluate.tokenize, lowercase=False)
            tokens, references = tokens + bleu.mean_length(texts) * len(texts), references + len(texts)
        return tokens / max(1.0, references)

    def batch_tokens(self, config: Config) -> int:
        """The most tokens that fit the device of every rank."""
        tokens = min(self._ranks.gather(find_budget(config, self.data, self._device)))
        say(f"train.batch_tokens: auto is {tokens:,} here; config.yaml in the run's folder holds the number")
        return tokens

    def last_update(self, config: Config) -> int:
        """The update at which `train.max_epochs` are trained. Epochs before a change of the update's size
        had another number of updates.
        """
        batches, progress = self.batches(config), self.progress
        epochs = config.train.max_epochs - progress.resized_at_epoch
        return progress.resized_at_step + updates_of_epochs(epochs, batches.updates_per_epoch)

    def batches(self, config: Config) -> BatchPrefetcher:
        """The batches, at the position of the checkpoint; `progress` is then the checkpoint's, too."""
        if self._batches is not None:
            return self._batches
        train, data = config.train, self.data
        plan = TrainingBatches(
            data.train,
            int(train.batch_tokens),
            config.seed,
            self._ranks.rank,
            self._ranks.size,
            epoch_pairs(config, data.train, data.sizes, data.tokenizer),
            Mixture(data.sizes, data.weights, config.seed),
            train.update_tokens,
        )
        self._batches = BatchPrefetcher(plan, train.accumulate, self._device)
        if self._saved is not None:
            self._restore(self._saved.state, self._batches, config)
        return self._batches

    def _restore(self, state: dict[str, Any], batches: BatchPrefetcher, config: Config) -> None:
        batches.load_state_dict(state["batches"])
        self.progress.load_state_dict(state["progress"])
        before = state.get("batches_per_update")
        if before is not None and is_other_update_size(before, config.train, self._ranks):
            note_other_update_size(before, config.train, self._ranks)
            self.progress.resized_at_step = self.progress.step
            self.progress.resized_at_epoch = batches.epochs

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()


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


def _check_config(config: Config, before: Config | None, folder: RunFolder, fresh: bool) -> None:
    """InputError if the config does not fit that of the checkpoint, or if there should be a checkpoint."""
    if before is not None:
        report_changes(before, config, folder)
    else:
        for code in dict.fromkeys(code for direction in config.data.directions for code in direction):
            check_language(code)  # not in the config's types: what was trained with another remains usable
        if not fresh and folder.weights_file.exists():
            raise InputError(
                f"{folder}: must hold the checkpoints of its model to be resumed, but holds none; start ",
                "over with ", Setting("fresh", True), ", which moves it aside, or train under another name",
            )  # fmt: skip
    if config.train.parallel == "fsdp" and config.train.batch_tokens == "auto":
        raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")


def _note_other_directions(config: Config, parent: Parent) -> None:
    """Say so if the run translates nothing that its parent does; that is rarely meant."""
    mine, theirs = (
        {(base_code(source), base_code(target)) for source, target in one.data.directions}
        for one in (config, parent.config)
    )
    if not mine & theirs:
        of_parent, own = (
            ", ".join(f"{source} to {target}" for source, target in sorted(directions))
            for directions in (theirs, mine)
        )
        say(f"note: {parent.folder} translates {of_parent}, and this run {own}")


def _refuse_foreign_tokenizer(folder: RunFolder, tokenizer: Tokenizer) -> None:
    """InputError if the new run would overwrite a vocabulary that the user put into its folder."""
    there = [file for file in tokenizer_files(folder.path) if file.exists()]
    if there and not folder.config_file.exists() and there[0].read_bytes() not in tokenizer.models:
        raise InputError(
            f"{there[0]}: a new run's folder must not hold a vocabulary, which it would overwrite; to train "
            "with it, put it elsewhere and name it in `tokenizer.file`"
        )


def _prepare_data(
    config: Config, tokenizer: Tokenizer | None, ranks: Ranks, left_out: frozenset[int]
) -> PreparedData:
    """The encoded pairs; InputError unless all ranks have the same and the monitor can be computed."""
    helping = help_prepare(config, tokenizer, left_out) if ranks.local_rank else nullcontext()
    with helping, ranks.local_rank_zero_first():
        data = prepare(config, tokenizer, log_probs, left_out)
    forget_models()
    if len(set(ranks.gather(data.fingerprint))) > 1:
        raise InputError(
            "every machine must prepare the same data, but they differ; set TRANSFORMER_MT_CACHE to a "
            "folder all of them see"
        )
    chosen = config.train.monitor_set
    deciding = [valid for valid in data.valid if chosen in ("mean", valid.name)]
    if config.train.monitor == "loss" and not all(len(valid.pairs) for valid in deciding):
        raise InputError("train.monitor must be BLEU, as no validation pair fits a batch, but is loss")
    return data


def _notes(asked: Config, config: Config, data: PreparedData) -> Iterator[str]:
    """What the user should know about the config that is trained, and about its validation sets."""
    if config.train.monitor != asked.train.monitor:
        yield (
            "note: the validation references have fewer than four of BLEU's tokens on average; "
            "train.monitor is chrF instead of BLEU"
        )
    if config.tokenizer.normalization != "identity" and not config.tokenizer.file and not config.init_from:
        for code, letters in ((code, changed_by_nfkc(code)) for code in config.data.languages_used):
            if letters:
                yield (
                    f"note: tokenizer.normalization: {config.tokenizer.normalization} changes characters of "
                    f"{code} ({letters}); auto or identity keeps them"
                )
    for valid in data.valid:
        pairs = sum(len(targets) for _, targets in valid.sentences)
        if 2 * len(valid.pairs) <= pairs:
            yield (
                f"note: the validation loss can use {len(valid.pairs):,} of {pairs:,} pairs of {valid.name}: "
                f"{', '.join(_why_unused(valid, data.tokenizer, config.data))}"
            )


def _why_unused(valid: ValidationSet, tokenizer: Tokenizer, data: DataConfig) -> Iterator[str]:
    """How many pairs each rule for lengths leaves out."""
    pairs = [(src, target) for src, targets in valid.sentences for target in targets]
    sides = tokenizer.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs])
    reasons = Counter(
        length_reason(len(src), len(tgt), data.max_length, data.max_length_ratio) for src, tgt in zip(*sides)
    )
    words = {
        LONG: f"are longer than data.max_length ({data.max_length})",
        RATIO: f"have a side longer than data.max_length_ratio ({data.max_length_ratio:g}) times the other",
        EMPTY: "have an empty side",
    }
    for reason, count in reasons.items():
        if reason is not None:
            yield f"{count:,} {words[reason]}"


def _create_folder(folder: Path, fresh: bool) -> FolderLock:
    """Create the run's folder and lock it; with `fresh` an old one is moved aside first."""
    if fresh and folder.is_dir():
        say(f"the old run is now {set_aside(folder)}")
    folder.mkdir(parents=True, exist_ok=True)
    return lock_folder(folder)


def _inherited(folder: RunFolder, parent: Parent | None, is_resumed: bool) -> frozenset[int] | None:
    """The keys of the sentences that the parent was chosen and scored by; none without a parent, None where
    it has not recorded them.
    """
    if is_resumed:
        of_run = ScoredSentences.read(folder.scored_file)
        return frozenset() if of_run is None else of_run.inherited
    if parent is None:
        return frozenset()
    of_parent = ScoredSentences.read(parent.folder.scored_file)
    if of_parent is not None:
        return of_parent.for_children
    say(
        f"note: {parent.folder} has not recorded its validation and test sentences: they are not left out of "
        "this training"
    )
    return None


def _scored_sentences(
    config: Config, data: PreparedData, inherited: frozenset[int] | None
) -> ScoredSentences:
    """The sentences that a run is chosen and scored by, with those of the run it continues."""
    held_out = [text for pairs in data.held_out.values() for pair in pairs for text in pair]
    with messages_to(lambda text: None):  # what is wrong with a set was said already
        keys = evaluation_keys(config.data)
    return ScoredSentences(keys_of(held_out) | keys.sources | keys.targets, inherited)


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
) -> tuple[TranslationModel, Updater]:
    """The model at update 0 and what updates it."""
    torch.manual_seed(config.seed)
    model = model_for(config, data.tokenizer)
    if parent is not None:
        parent.give_weights(model)
    model = model.to(device)
    updater = build_updater(config, model, device, dtype, ranks)
    if not ranks.is_rank_zero:
        torch.manual_seed(config.seed + ranks.rank)  # equal weights on each rank, but different dropout
    return model, updater


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
    saved = folder.newest_checkpoint() if ranks.is_rank_zero else None
    path = ranks.broadcast(saved and str(saved.path))
    if ranks.is_rank_zero or path is None:
        return saved
    if not Path(path).exists():
        raise InputError(f"{path}: every machine must see the run's folder, but rank {ranks.rank} does not")
    return checkpoint.load(Path(path))
