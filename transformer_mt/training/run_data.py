"""The data of a run: prepared pairs, the facts that settle its config, and the batches."""

import math

import torch

from transformer_mt.checkpoint import Checkpoint
from transformer_mt.config import Config
from transformer_mt.config.resolve import DataFacts, Known, updates_of_epochs
from transformer_mt.corpora.evaluation_sets import evenly_spaced
from transformer_mt.corpora.seen_sentences import Sentences
from transformer_mt.data.batches.batching import TrainingBatches
from transformer_mt.data.batches.prefetch import BatchPrefetcher
from transformer_mt.data.changes.change import Change
from transformer_mt.data.preparation.prepare import prepare
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.vocabulary.given_tokenizer import settle
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.device import keep_freed_memory
from transformer_mt.errors import InputError, Setting
from transformer_mt.evaluation.sacrebleu_metrics import build_bleu
from transformer_mt.messages import say
from transformer_mt.ranks import Ranks
from transformer_mt.runs.folder import RunFolder
from transformer_mt.settings.section import OF_RUN
from transformer_mt.training.batch_budget import find_budget
from transformer_mt.training.state.config_changes import is_other_update_size, note_other_update_size
from transformer_mt.training.state.parent import Parent, seen_before
from transformer_mt.training.state.progress import Progress

_SAMPLED_REFERENCES = 1000


def prepare_data(
    config: Config,
    tokenizer: Tokenizer | None,
    inherited: Sentences,
    saved: Checkpoint | None,
    device: torch.device,
    ranks: Ranks,
) -> PreparedData:
    """The encoded pairs. InputError unless all ranks have the same, those of the checkpoint `saved`, and the
    monitor can be computed.
    """
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
    if saved is not None and saved.state["data_fingerprint"] != data.fingerprint:
        before = Config.model_validate(saved.state["config"], context=OF_RUN)
        has_other_tests = before.data.test != config.data.test
        what = "the test sets, which training leaves out," if has_other_tests else ""
        made_with = {
            "data.terms.file": config.data.terms.file,
            "train.guided_alignment": config.train.guided_alignment.weight,
        }
        files = [f", or what {key} adds to them," for key, is_used in made_with.items() if is_used]
        what = what or f"the training or validation data{''.join(files)}"
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
    """The batches, and how far the training is: at the checkpoint `saved`, or at the beginning."""
    train, mixture, progress = config.train, data.mixture(config), Progress()
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
        before = saved.state.get("batches_per_update")
        if before is not None and is_other_update_size(before, train, ranks):
            note_other_update_size(before, train, ranks)
            progress.resized_at_step, progress.resized_at_epoch = progress.step, batches.epochs
    return batches, progress


def last_update(config: Config, batches: BatchPrefetcher, progress: Progress) -> int:
    """The update at which `train.max_epochs` are trained. Epochs before a change of the update's size had
    another number of updates.
    """
    epochs = config.train.max_epochs - progress.resized_at_epoch
    return progress.resized_at_step + updates_of_epochs(epochs, batches.updates_per_epoch)


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
