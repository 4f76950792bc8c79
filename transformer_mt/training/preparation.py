"""The data of a run, and the values of its config that depend on them."""

from typing import Any

import torch

from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.prefetch import BatchPrefetcher
from transformer_mt.data.changes.change import Change
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.device import keep_freed_memory
from transformer_mt.errors import InputError, Setting
from transformer_mt.evaluation.sacrebleu_metrics import build_bleu
from transformer_mt.messages import say
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.resolve import updates_of_epochs
from transformer_mt.training.batch_budget import find_budget
from transformer_mt.training.folder_checks import check_config, refuse_foreign_tokenizer
from transformer_mt.training.parallel.distributed import Ranks
from transformer_mt.training.state.config_changes import is_other_update_size, note_other_update_size
from transformer_mt.training.state.progress import Progress

_SAMPLED_REFERENCES = 1000


class Preparation:
    """The data of a run and its position in them, as `resolve` asks for them."""

    def __init__(
        self,
        folder: RunFolder,
        fresh: bool,
        saved: Checkpoint | None,
        before: Config | None,
        device: torch.device,
        ranks: Ranks,
        inherited: Sentences,
    ) -> None:
        """`before` is the config of the checkpoint that is resumed, `inherited` the sentences that the
        models have seen which the run is made of.
        """
        self._inherited = inherited
        self._folder, self._fresh, self._saved, self._before = folder, fresh, saved, before
        self._device, self._ranks = device, ranks
        self.data: PreparedData
        self.progress = Progress()
        self._batches: BatchPrefetcher | None = None

    def prepare(self, config: Config, tokenizer: Tokenizer | None) -> None:
        """Check the config, then prepare its data. InputError if the data do not fit it or the checkpoint."""
        check_config(config, self._before, self._folder, self._fresh)
        self.data = _prepare_data(config, tokenizer, self._ranks, self._inherited)
        if self._saved is None and not self._fresh:
            refuse_foreign_tokenizer(self._folder, self.data.tokenizer)
        if self._saved is not None and self._saved.state["data_fingerprint"] != self.data.fingerprint:
            has_other_tests = self._before is not None and self._before.data.test != config.data.test
            what = "the test sets, which training leaves out," if has_other_tests else ""
            raise InputError(
                f"{self._folder}: {what or 'the training or validation data'} changed since this run began; ",
                "restore the old data, or start over with ", Setting("fresh", True),
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

    @property
    def is_on_gpu(self) -> bool:
        return self._device.type == "cuda"

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
        mixture = data.mixture(config)
        rows = data.rows(config, mixture)
        shape = None
        if train.packed is True:
            # In other epochs other pairs may be the longest.
            longest = config.data.max_length if isinstance(rows, Change) else data.longest
            shape = data.shape(train.update_tokens or int(train.batch_tokens), longest)
        plan = TrainingBatches(
            rows,
            int(train.batch_tokens),
            config.seed,
            self._ranks.rank,
            self._ranks.size,
            mixture,
            train.update_tokens,
            shape,
        )
        own_process = self.is_on_gpu and config.tokenizer.bpe_dropout > 0
        self._batches = BatchPrefetcher(plan, train.accumulate, self._device, own_process)
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


def _prepare_data(
    config: Config, tokenizer: Tokenizer | None, ranks: Ranks, inherited: Sentences
) -> PreparedData:
    """The encoded pairs; InputError unless all ranks have the same and the monitor can be computed."""
    with ranks.local_rank_zero_first():
        data = prepare(config, tokenizer, inherited)
    if len(set(ranks.gather(data.fingerprint))) > 1:
        raise InputError(
            "every machine must prepare the same data, but they differ; set TRANSFORMER_MT_CACHE to a "
            "folder all of them see"
        )
    chosen = config.train.monitor_set
    deciding = [valid for valid in data.valid if chosen in ("mean", valid.name)]
    if config.train.monitor == "loss" and not all(len(valid.pairs) for valid in deciding):
        raise InputError(
            f"data.valid must have texts of at most data.max_length ({config.data.max_length}) tokens for "
            "train.monitor: loss, but has none"
        )
    return data
