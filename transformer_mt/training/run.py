"""A run: its folder and everything in it that changes, put together from a config, saved and restored as one."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from transformer_mt import checkpoint
from transformer_mt.checkpoint import Checkpoint, CheckpointError
from transformer_mt.config import Config
from transformer_mt.config_file import dump_config
from transformer_mt.data.ahead import BatchesAhead
from transformer_mt.data.batching import TrainingBatches
from transformer_mt.data.prepare import PreparedData, prepare
from transformer_mt.data.subword_dropout import Respelling
from transformer_mt.data.tokenizer import Tokenizer
from transformer_mt.device import choose_device, choose_precision, keep_large_buffers
from transformer_mt.errors import InputError, WorkError
from transformer_mt.evaluation.scores import corpus_scores
from transformer_mt.files import write_text
from transformer_mt.locks import FolderLock, lock_folder, set_aside
from transformer_mt.model.build import build_model
from transformer_mt.model.interface import TranslationModel
from transformer_mt.training.budget import find_budget
from transformer_mt.training.changes import changed_scores, compare_configs, compare_ranks, compare_updates
from transformer_mt.training.distributed import Ranks, spread
from transformer_mt.training.journal import Journal, say
from transformer_mt.training.optimizer import build_optimizer, load_optimizer_tensors, optimizer_tensors
from transformer_mt.training.progress import Progress
from transformer_mt.training.random_state import random_states, restore_random_states
from transformer_mt.training.step import Objective, Pending, Updater

# A model that met several sentences in this share of its training sources has learnt to translate them together.
_SEVERAL_SENTENCES = 0.2


@dataclass
class Run:
    """What one training works on."""

    config: Config
    folder: Path
    data: PreparedData
    device: torch.device
    model: TranslationModel
    optimizer: torch.optim.Optimizer
    updater: Updater
    batches: BatchesAhead
    progress: Progress
    journal: Journal
    ranks: Ranks
    lock: FolderLock | None
    """Held by rank 0 until the run is closed."""
    saved_step: int | None = None
    pending: list[Pending] = field(default_factory=list)
    """Updates whose numbers were not read yet."""
    pending_since: float = 0.0

    def close(self) -> None:
        """End the batch thread and the progress bar, and let others train in the folder."""
        self.journal.close()
        self.batches.close()
        if self.lock is not None:
            self.lock.release()

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def averaging(self) -> Path:
        """Weights of the checkpoints that will be averaged; hard links, so they cost nothing while those exist."""
        return self.folder / "averaging"

    def state_dict(self) -> dict[str, Any]:
        """All that is not a tensor."""
        return {
            "progress": self.progress.state_dict(),
            "batches": self.batches.state_dict(),
            "scaler": self.updater.scaler.state_dict(),
            "data_fingerprint": self.data.fingerprint,
            "batches_per_update": self.ranks.size * self.config.train.accumulate,
            "micro_batch_tokens": self.updater.micro_batch_tokens,
            "config": self.config.model_dump(),
        }

    def save(self) -> None:
        """Write a checkpoint of this moment, unless there is one; keep the newest and the best. All ranks, together."""
        if self.saved_step == self.progress.step:
            return
        self.saved_step = self.progress.step
        tensors = {"rng": random_states(self.device, self.ranks), "model": self.weights()}
        if self._gives_weights:
            tensors["optimizer"] = optimizer_tensors(self.optimizer, self.model)
        if not self.ranks.is_first:
            return
        try:
            path = checkpoint.save(self.checkpoints, self.progress.step, tensors, self.state_dict())
        except CheckpointError as error:
            whole = checkpoint.all_checkpoints(self.checkpoints)
            last = f"the last whole checkpoint is {whole[-1].name}" if whole else "there is no whole checkpoint yet"
            raise WorkError(f"{error}; {last}; make room and run the same command to go on from it") from None
        checkpoint.rotate(self.checkpoints, self.config.train.keep_checkpoints, self.progress.best_step)
        self._keep_for_averaging(path)

    def restore(self, saved: Checkpoint) -> None:
        """Become the run that wrote the checkpoint."""
        state = saved.state
        if state["data_fingerprint"] != self.data.fingerprint:
            raise InputError(
                f"{self.folder}: the training or validation data changed since this run began; "
                "bring the old data back, or start over with --fresh"
            )
        checkpoint.load_model_weights(self.model, saved.tensors["model"], str(saved.path))
        load_optimizer_tensors(self.optimizer, self.model, saved.tensors["optimizer"])
        if self.updater.scaler.is_enabled() and state["scaler"]:  # another precision has none
            self.updater.scaler.load_state_dict(state["scaler"])
        self.batches.load_state_dict(state["batches"])
        self.progress.load_state_dict(state["progress"])
        compare_updates(state.get("batches_per_update"), self.config, self.ranks)
        self._keep_micro_batches(state)
        if changed := changed_scores(state["config"], self.config):
            say(f"scores before and after a change of {', '.join(changed)} do not compare: the best is looked for anew")
            self.progress.forget_scores()
        restore_random_states(saved.tensors["rng"], self.device, self.ranks, self.config.seed + self.progress.step)
        self.saved_step = self.progress.step
        if self.ranks.is_first:
            self._keep_for_averaging(saved.path)

    def _keep_micro_batches(self, state: dict[str, Any]) -> None:
        """Those the memory asked for, as a batch in parts draws other dropout; a change of the config overrules them."""
        before, now = state["config"]["train"].get("micro_batch_tokens", 0), self.config.train.micro_batch_tokens
        found = state.get("micro_batch_tokens", before)
        if before == now != found:
            self.updater.micro_batch_tokens = found
            say(
                f"in micro-batches of at most {found:,} positions, as before; train.micro_batch_tokens sets another number"
            )

    @property
    def _gives_weights(self) -> bool:
        """Whether the first rank, which writes, cannot do without this one."""
        return self.ranks.is_first or self.config.train.parallel == "fsdp"

    def weights(self) -> checkpoint.Tensors:
        """The model's weights on the processor, for the first rank to write; all ranks must ask, and the others may get none."""
        return checkpoint.model_weights(self.model) if self._gives_weights else {}

    def whole_model(self) -> TranslationModel:
        """The model with all its weights on this device: the one trained, or a copy where ranks hold a part each."""
        if self.config.train.parallel != "fsdp":
            return self.model
        # A copy's first weights are drawn, but a validation must not change the training.
        with torch.random.fork_rng(devices=[]):
            copy = _model(self.config, self.data.tokenizer).to(self.device)
        checkpoint.load_model_weights(copy, checkpoint.model_weights(self.model), "the model")
        return copy

    def averaged_steps(self) -> list[int]:
        """Steps of the checkpoints whose weights are to be averaged, of those kept so far.

        An interruption saves off the beat; such a checkpoint does not count, so that interrupted runs end the same.
        """
        train, progress = self.config.train, self.progress
        there = sorted(int(path.stem.removeprefix("step-")) for path in self.averaging.glob("step-*.safetensors"))
        there = [step for step in there if step <= progress.step]
        on_beat = [step for step in there if step % train.save_every == 0 or step == train.max_updates]
        if train.average == "last":
            return on_beat[-train.average_checkpoints :]
        scores, new_bests = dict(progress.scores), progress.new_bests()
        candidates = [step for step in there if step in scores and (step in on_beat or step in new_bests)]
        return sorted(sorted(candidates, key=lambda step: (-scores[step], -step))[: train.average_checkpoints])

    def averaging_file(self, step: int) -> Path:
        return self.averaging / f"step-{step:08d}.safetensors"

    def _keep_for_averaging(self, path: Path) -> None:
        """Link the weights of a new checkpoint into `averaging` and drop those no longer wanted there."""
        if self.config.train.average_checkpoints == 1:
            return
        self.averaging.mkdir(exist_ok=True)
        link = self.averaging / f"{path.name}.safetensors"
        try:
            link.unlink(missing_ok=True)
            link.hardlink_to(path / "model.safetensors")
        except OSError:  # a file system without hard links
            checkpoint.save_weights(link, checkpoint.load_weights(path / "model.safetensors"))
        wanted = {self.averaging_file(step) for step in self.averaged_steps()}
        for file in self.averaging.glob("step-*.safetensors"):
            if file not in wanted:
                file.unlink()


def open_run(config: Config, folder: Path, fresh: bool = False, ranks: Ranks | None = None) -> Run:
    """The run in `folder`, at its newest whole checkpoint or at its beginning; `fresh` moves an old run aside first.

    Nothing in the folder is touched before the config, the device and the data are found good. The caller closes it.
    """
    with ExitStack() as held:
        run = _open_run(config, folder, fresh, ranks, held)
        held.pop_all()  # from here on the run holds the lock and ends the batch thread
    return run


def _open_run(config: Config, folder: Path, fresh: bool, ranks: Ranks | None, held: ExitStack) -> Run:
    ranks = ranks or Ranks()
    device = choose_device(config.train.device)
    if config.train.parallel == "fsdp" and ranks.size == 1:
        raise InputError("train.parallel: fsdp must have several processes, but there is one; start it with torchrun")
    # Whether BLEU can be computed is asked now, not at the first validation.
    corpus_scores(["a"], ["a"], config.data.target_lang, config.evaluate.tokenize, metrics=("BLEU",))
    # First of all, as damaged checkpoints are put aside. A folder that is to be moved is asked for when it is.
    lock = held.enter_context(lock_folder(folder)) if ranks.is_first and folder.is_dir() and not fresh else None
    dtype = choose_precision(config.train.precision, device)
    found = {"train.device": device.type, "train.precision": str(dtype).removeprefix("torch."), "--fresh": fresh}
    compare_ranks(config, found, ranks)
    saved = None if fresh else _newest(folder, ranks)
    if saved is not None:
        config = compare_configs(_config_of(saved, folder), config, folder)
    elif not fresh and (folder / "model.safetensors").exists():
        raise InputError(
            f"{folder}: must hold the checkpoints of its model to go on, but holds none; start over with --fresh, which "
            "moves it aside, or train under another name"
        )
    if config.train.parallel == "fsdp" and config.train.batch_tokens == "auto":
        raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")
    with ranks.first_here_first():
        data = prepare(config, say, Tokenizer.load(folder) if saved is not None else None)
    if len(set(ranks.gather(data.fingerprint))) > 1:
        raise InputError(
            "every machine must prepare the same data, but they differ; set TRANSFORMER_MT_CACHE to a folder all of them see"
        )
    if config.train.monitor == "loss" and not len(data.valid):
        raise InputError("train.monitor must be bleu, as no validation pair fits a batch, but is loss")
    if device.type == "cpu":
        keep_large_buffers()
    config = _with_sentence_splitting(_with_budget(config, data, device, ranks), data)
    if ranks.is_first and lock is None:
        if fresh and folder.is_dir():
            say(f"the old run is now {set_aside(folder)}")
        folder.mkdir(parents=True, exist_ok=True)
        lock = held.enter_context(lock_folder(folder))

    train = config.train
    torch.manual_seed(config.seed)
    model = _model(config, data.tokenizer).to(device)
    compiled = train.compile is True or (train.compile == "auto" and device.type == "cuda")
    alone = Objective(model, train.label_smoothing, compiled)
    objective = spread(alone, model.blocks, train.parallel, ranks, device)
    if not ranks.is_first:
        torch.manual_seed(config.seed + ranks.rank)  # the same weights on each rank, but not the same dropout
    optimizer = build_optimizer(model, train)
    updater = Updater(objective, optimizer, device, dtype, train.max_grad_norm, ranks, say, train.micro_batch_tokens)
    sampling = config.tokenizer.sampling
    spelling = (
        Respelling(data.train, data.tokenizer, sampling, config.seed, config.data.max_length) if sampling else None
    )
    plan = TrainingBatches(data.train, int(train.batch_tokens), config.seed, ranks.rank, ranks.size, spelling)
    batches = BatchesAhead(plan, train.accumulate, device)
    held.callback(batches.close)
    journal = Journal(folder, active=ranks.is_first)
    run = Run(config, folder, data, device, model, optimizer, updater, batches, Progress(), journal, ranks, lock)
    if saved is not None:
        run.restore(saved)
        say(f"going on from {saved.path}: update {run.progress.step:,} of {train.max_updates:,}")
    elif ranks.is_first:
        data.tokenizer.save(folder)
    if ranks.is_first:
        write_text(folder / "config.yaml", dump_config(config, comments=True))
    return run


def _model(config: Config, tokenizer: Tokenizer) -> TranslationModel:
    src_vocab, tgt_vocab = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    return build_model(config.model, src_vocab, tgt_vocab, tokenizer.shared, config.data.max_length)


def _config_of(saved: Checkpoint, folder: Path) -> Config:
    try:
        return Config.model_validate(saved.state["config"])
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        raise InputError(
            f"{folder}: was trained by another version, whose `{key}` this one does not take; go on with that version, "
            "or start over with --fresh"
        ) from None


def _newest(folder: Path, ranks: Ranks) -> Checkpoint | None:
    """The newest whole checkpoint; the first rank looks for it, since it puts damaged ones aside."""
    saved = checkpoint.newest(folder / "checkpoints", say) if ranks.is_first else None
    path = ranks.from_first(saved and str(saved.path))
    return saved if ranks.is_first or path is None else checkpoint.load(Path(path))


def _with_sentence_splitting(config: Config, data: PreparedData) -> Config:
    """The config with true or false where `decode.split_sentences` is auto: translation needs no training data then."""
    if config.decode.split_sentences != "auto" or data.several_sentences is None:
        return config
    found = {"split_sentences": data.several_sentences < _SEVERAL_SENTENCES}
    return config.model_copy(update={"decode": config.decode.model_copy(update=found)})


def _with_budget(config: Config, data: PreparedData, device: torch.device, ranks: Ranks) -> Config:
    """The config with a number where `train.batch_tokens` is auto."""
    if config.train.batch_tokens != "auto":
        return config
    tokens = min(ranks.gather(find_budget(config, data, device)))
    say(f"train.batch_tokens: auto is {tokens:,} here; config.yaml in the run's folder holds the number")
    return config.model_copy(update={"train": config.train.model_copy(update={"batch_tokens": tokens})})
