"""Checks that find mistakes before the first update: in the config, in the run's folder and in the data."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile

import torch

from transformer_mt.config import Config, DataConfig
from transformer_mt.config.build_part import part_settings, parts_of
from transformer_mt.corpora.corpus import Corpus
from transformer_mt.corpora.toy import ToyCorpus
from transformer_mt.data.changes.augmentation import unchanged_by
from transformer_mt.data.preparation.clean import training_pairs
from transformer_mt.data.preparation.prepared_data import PreparedData
from transformer_mt.data.preparation.training_links import read_links
from transformer_mt.data.vocabulary.given_tokenizer import lost_letters_notes
from transformer_mt.data.vocabulary.tokenizer import COMPOSE, UNK, Tokenizer, tokenizer_files
from transformer_mt.device import choose_device, choose_precision, use_device
from transformer_mt.errors import InputError, Setting
from transformer_mt.evaluation.metrics import build_metrics
from transformer_mt.model.build_model import build_model
from transformer_mt.parts import is_ours, load_part
from transformer_mt.ranks import Ranks
from transformer_mt.run.config_changes import refuse_different_ranks, report_changes
from transformer_mt.run.loggers import check_loggers
from transformer_mt.run.validation import validation_metrics
from transformer_mt.run_folder import RunFolder
from transformer_mt.settings.corpus_keys import check_language
from transformer_mt.settings.objectives import objective_class
from transformer_mt.settings.part import parts_named
from transformer_mt.text.languages import LanguageIdentifier, is_same_language
from transformer_mt.text.lines import Pair
from transformer_mt.translation.planner import can_translate
from transformer_mt.translation.stages.call import brought_stage
from transformer_mt.update.build_updater import build_loss
from transformer_mt.update.schedule import build_schedule

_ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def check_early(config: Config, fresh: bool, ranks: Ranks) -> tuple[torch.device, torch.dtype]:
    """The device and the precision. InputError if this machine cannot run the config, or if the ranks were
    started differently.
    """
    train = config.train
    device = choose_device(train.device)
    use_device(device)
    if train.parallel == "fsdp" and ranks.size == 1:
        raise InputError(
            "train.parallel: fsdp must have several processes, but there is one; start it with torchrun"
        )
    _check_sets(config)
    for key, kind, name in parts_named(config):
        part_settings(load_part(kind, name), name, key)
    for change, settings in parts_of("change", config.data.changes, "data.changes"):
        change.check(config, **settings)
    for name in config.decode.stages:
        brought_stage(name)
    if any(not is_ours(kind, name) for _, kind, name in parts_named(config.model)):
        with torch.random.fork_rng(devices=[]):  # tried once, small
            build_model(config.model.model_copy(update=_ONE_LAYER), 8, 8, True, 8)
    for file in config.train.guided_alignment.files:
        next(read_links(file), None)
    build_loss(train), build_schedule(train)
    check_loggers(train.loggers)
    dtype = choose_precision(train.precision, device)
    _refuse_bf16_weights(config, dtype)
    settings = {
        "train.device": device.type,
        "train.precision": str(dtype).removeprefix("torch."),
        "fresh": fresh,
    }
    refuse_different_ranks(config, settings, ranks)
    if device.type == "cuda":
        _refuse_shared_gpu(f"{socket.gethostname()} {torch.cuda.get_device_properties(device).uuid}", ranks)
    return device, dtype


def _refuse_shared_gpu(uuid: str, ranks: Ranks) -> None:
    """InputError if two ranks were given the same GPU, which NCCL does not allow."""
    gpus = ranks.gather(uuid)
    for rank, gpu in enumerate(gpus):
        if (first := gpus.index(gpu)) < rank:
            raise InputError(
                f"each process must have a GPU of its own, but ranks {first} and {rank} have the same, "
                f"{gpu}; start as many processes as there are GPUs"
            )


def _check_sets(config: Config) -> None:
    """InputError if the validation sets cannot be translated, scored, or told apart."""
    names = [corpus.title for corpus in config.data.valid_sets]
    if config.train.monitor_set not in ("mean", *names):
        raise InputError(
            f"train.monitor_set must be mean or one of the validation sets ({', '.join(names)}), but is "
            f"{config.train.monitor_set}"
        )
    if len(set(names)) < len(names) or "mean" in names:
        raise InputError(
            f"the validation sets must have different names, and none may be `mean`, but they are "
            f"called {', '.join(names)}; give each a `name`"
        )
    data = config.data
    monitor, chosen = config.train.monitor, config.train.monitor_set
    deciding = [
        objective_class(data.objective_of(corpus))
        for corpus in data.valid_sets
        if chosen in ("mean", corpus.title)
    ]
    has_no_score = not any(objective.translates or objective.has_labels for objective in deciding)
    if has_no_score and (monitor == "exact match" or (data.translates and monitor != "loss")):
        raise InputError(
            f"train.monitor must be loss, but is {monitor}: the deciding validation set ({chosen}) has no "
            "translations to score"
        )
    for corpus in data.valid_sets:
        languages = data.languages_of(corpus)
        if not data.translates_set(corpus):
            continue
        if not corpus.is_held_out and not can_translate(data.directions, data.has_language_pieces, languages):
            known = ", ".join(f"{source} to {target}" for source, target in data.directions)
            raise InputError(
                f"data.valid must be sets that the model translates ({known}), but {corpus.title} is "
                f"{languages[0]} to {languages[1]}"
            )
    # What a metric needs may be missing: report it now, not at the first validation.
    for target in dict.fromkeys(target for _, target in data.directions) if data.translates else ():
        for metric in build_metrics(config.evaluate, target, validation_metrics(config)):
            metric.score(["a"], ["a"], [["a"]])


def _refuse_bf16_weights(config: Config, dtype: torch.dtype) -> None:
    """Raise InputError if train.fsdp_weights is bf16, but the layers need float32 weights."""
    if config.train.fsdp_weights == "fp32":
        return
    if config.model.kind != "transformer":
        raise InputError(f"train.fsdp_weights must be fp32 with model.kind: {config.model.kind}, but is bf16")
    if dtype != torch.bfloat16:
        precision = str(dtype).removeprefix("torch.")
        raise InputError(
            f"train.fsdp_weights must be fp32 where matrix products are {precision} (train.precision), "
            "but is bf16"
        )


def check_folder(folder: RunFolder, fresh: bool) -> None:
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


def check_writable(folder: Path) -> None:
    """InputError if no file can be created in the folder, or in its nearest existing parent."""
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        TemporaryFile(dir=nearest).close()
    except OSError as error:
        raise InputError(
            f"{folder}: must be a folder that can be written to, but {nearest} is not ({error.strerror}); ",
            "name another with ", Setting("out"),
        ) from None  # fmt: skip


def check_config(config: Config, before: Config | None, folder: RunFolder, fresh: bool) -> None:
    """InputError if the config does not fit that of the checkpoint, or if there should be a checkpoint."""
    if before is not None:
        report_changes(before, config, folder)
    else:
        for code in config.data.languages_used:
            try:
                check_language(code)  # not in the config's types: runs with other codes remain usable
            except InputError as error:
                raise InputError(f"a language of `data`: {error}") from None
        if not fresh and folder.weights_file.exists():
            raise InputError(
                f"{folder}: must hold the checkpoints of its model to be resumed, but holds none; start ",
                "over with ", Setting("fresh", True), ", which moves it aside, or train under another name",
            )  # fmt: skip
    if config.train.parallel == "fsdp" and config.train.batch_tokens == "auto":
        raise InputError("train.batch_tokens must be a number with train.parallel: fsdp, but is auto")


def refuse_foreign_tokenizer(folder: RunFolder, tokenizer: Tokenizer) -> None:
    """InputError if the new run would overwrite a vocabulary that the user put into its folder."""
    files = [file for file in tokenizer_files(folder.path) if file.exists()]
    if files and not folder.config_file.exists() and files[0].read_bytes() not in tokenizer.models:
        raise InputError(
            f"{files[0]}: a new run would overwrite this vocabulary; to train with it, move it elsewhere and "
            "name it in `tokenizer.file`"
        )


_ROWS = 2000
"""Pairs of a corpus that are looked at."""


def notes_on(written: Config, config: Config, data: PreparedData) -> Iterator[str]:
    """Notes on a resolved config, on what the user asked for, and on the prepared validation sets."""
    if config.train.monitor == "chrF" != written.train.monitor:
        yield (
            "note: the validation references have fewer than four of BLEU's tokens on average; "
            "train.monitor is chrF instead of BLEU"
        )
    train = data.train
    rows = range(0, len(train), -(-len(train) // _ROWS) or 1)
    has_unknown = any(UNK in train.src(row) or UNK in train.tgt(row) for row in rows)
    is_given = bool(config.init_from or config.tokenizer.file)
    if config.tokenizer.normalization not in (COMPOSE, "identity") or (is_given and has_unknown):
        looked_at = [pair for entry in config.data.entries for pair in _pairs_of(entry, config.data)]
        yield from lost_letters_notes(data.tokenizer, looked_at, is_given)
    if config.data.augment.is_on:
        for entry in config.data.entries:
            looked_at = _pairs_of(entry, config.data)
            yield from unchanged_by(config.data.augment, looked_at, config.data.languages_of(entry))
    for valid in data.valid:
        pairs = sum(len(targets) for _, targets in valid.sentences)
        if len(valid.pairs) < pairs:
            yield (
                f"note: the validation loss uses {len(valid.pairs):,} of {pairs:,} pairs of {valid.name}; "
                "others have an empty side, or are longer than data.max_length or max_length_ratio allow"
            )


_SAMPLE = 100
"""Number of pairs of a corpus whose languages are identified."""


def notes_on_languages(data: DataConfig) -> Iterator[str]:
    """Yields a note for each corpus whose sides are exchanged in most pairs. Corpora of fewer than 200 pairs
    are not examined, and none without the extra `clean`.
    """
    corpora = [
        (entry, data.languages_of(entry)) for entry in data.entries if not isinstance(entry, ToyCorpus)
    ]
    samples = [
        (entry, languages, _pairs_of(entry, data)[:: _ROWS // _SAMPLE]) for entry, languages in corpora
    ]
    samples = [sample for sample in samples if len(sample[2]) >= _LEAST and len(set(sample[1])) == 2]
    if not samples:
        return
    with suppress(InputError):  # the extra is not installed
        identifier = LanguageIdentifier()
        for entry, (source, target), pairs in samples:
            if not (identifier.knows(source) and identifier.knows(target)):
                continue
            swapped = sum(
                is_same_language(identifier.best(src), target)
                and is_same_language(identifier.best(tgt), source)
                for src, tgt in pairs
            )
            if swapped > len(pairs) / 2:
                yield (
                    f"note: {entry.describe()}: the sources are in {target} and the targets in {source}; "
                    "stop with Ctrl-C and exchange source and target, or the columns, of this corpus"
                )


_LEAST = 10
"""Fewest sampled pairs that say something about a corpus: those of 200 pairs."""


def _pairs_of(entry: Corpus, settings: DataConfig) -> list[Pair]:
    """The first pairs of a corpus; none for classification, or if the corpus cannot be read."""
    if objective_class(entry.objective).has_labels:
        return []
    with suppress(InputError):  # the data come from the cache, and the corpus is out of reach now
        return list(islice(training_pairs(entry, settings), _ROWS))
    return []
