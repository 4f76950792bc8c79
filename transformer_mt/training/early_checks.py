"""Mistakes that are found before any file is read: within seconds, not at the first validation."""

import socket

import torch

from transformer_mt.config import Config
from transformer_mt.config.build_part import part_settings
from transformer_mt.data.alignment.pharaoh import read_links
from transformer_mt.device import choose_device, choose_precision, use_device
from transformer_mt.errors import InputError
from transformer_mt.evaluation.metrics import build_metrics
from transformer_mt.model.build_model import build_model
from transformer_mt.parts import is_ours, load_part
from transformer_mt.ranks import Ranks
from transformer_mt.settings.part import parts_named
from transformer_mt.terms.glossary_file import read_glossary
from transformer_mt.training.reporting.loggers import check_loggers
from transformer_mt.training.state.config_changes import refuse_different_ranks
from transformer_mt.training.update.build_updater import build_loss
from transformer_mt.training.update.schedule import build_schedule
from transformer_mt.training.validate import validation_metrics
from transformer_mt.translation.direction import can_translate
from transformer_mt.translation.stages.build_stages import brought_stage

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
    if (glossary := config.data.terms.file) is not None:
        read_glossary(glossary, config.data.languages)
    for key, kind, name in parts_named(config):
        part_settings(load_part(kind, name), name, key)
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
    deciding = {data.objective_of(corpus) for corpus in data.valid_sets if chosen in ("mean", corpus.title)}
    has_no_score = not deciding & {"translation", "classification"}
    if has_no_score and (monitor == "exact match" or (data.translates and monitor != "loss")):
        raise InputError(
            f"train.monitor must be loss, but is {monitor}: the deciding validation set ({chosen}) has no "
            "translations to score"
        )
    for corpus in data.valid_sets:
        languages = data.languages_of(corpus)
        if data.objective_of(corpus) != "translation":
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
