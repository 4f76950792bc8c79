"""A student that begins with weights of its teacher: the layers it has, taken evenly from the teacher's."""

import re
from pathlib import Path

import torch

from transformer_mt.checkpoint import save_weights
from transformer_mt.config import Config
from transformer_mt.config.dump import dump_config
from transformer_mt.errors import InputError, Setting
from transformer_mt.files import write_text
from transformer_mt.runs.folder import RunFolder
from transformer_mt.runs.resolve import changed
from transformer_mt.training.state.run import model_for

_LAYER = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.")


def check_warm_start(teacher: Path, config: Config) -> None:
    """InputError unless the student can begin with the teacher's weights."""
    theirs = RunFolder(teacher).config()
    RunFolder(teacher).check_weights()
    for key, is_given in (("init_from", config.init_from), ("tokenizer.file", config.tokenizer.file)):
        if is_given:
            raise InputError(
                Setting(key), " must be left out for a student that begins with its teacher's weights"
            )
    if theirs.model.d_model != config.model.d_model:
        raise InputError(
            f"a student that begins with its teacher's weights must have its model.d_model "
            f"({theirs.model.d_model}), but has {config.model.d_model}"
        )


def warm_started(teacher: Path, config: Config, folder: Path) -> Config:
    """The student's config, beginning from a run that is written into the folder: a model of the student's
    shape with the teacher's vocabulary, and the teacher's weights where they have the student's shape.
    """
    run = RunFolder(teacher)
    theirs, tokenizer = run.config(), run.tokenizer()
    settings = {**theirs.tokenizer.model_dump(), "bpe_dropout": config.tokenizer.bpe_dropout, "file": None}
    config = changed(config, "tokenizer", **settings)
    if theirs.data.has_language_pieces and config.data.language_pieces == "auto":
        # The teacher has never seen a source without
        both = theirs.data.language_pieces == "both"
        config = changed(config, "data", language_pieces="both" if both else True)
    torch.manual_seed(config.seed)
    weights = {name: p.detach().clone() for name, p in model_for(config, tokenizer).named_parameters()}
    depth = {
        "encoder": (config.model.num_encoder_layers, theirs.model.num_encoder_layers),
        "decoder": (config.model.num_decoder_layers, theirs.model.num_decoder_layers),
    }
    found = run.weights()
    for name, weight in weights.items():
        other = found.get(_name_in_teacher(name, depth))
        if other is not None and other.shape == weight.shape:
            weights[name] = other.clone()  # a layer of the teacher may begin several of the student's
    begun = RunFolder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(folder)
    save_weights(begun.weights_file, weights)
    write_text(begun.config_file, dump_config(config))
    return config.model_copy(update={"init_from": str(folder)})


def _name_in_teacher(name: str, depth: dict[str, tuple[int, int]]) -> str:
    """The name of a weight of the student in the teacher: the first and the last layer are those of the
    teacher, others lie evenly between them.
    """
    match = _LAYER.match(name)
    if match is None:
        return name
    side, number = match[1], int(match[2])
    mine, theirs = depth[side]
    layer = round(number * (theirs - 1) / (mine - 1)) if mine > 1 else 0
    return f"{side}.layers.{layer}.{name[match.end() :]}"
