"""Joins an encoder and a decoder that were trained alone, as BERT and GPT are (Rothe et al. 2020), into a run
in the cache, from which the training of a translation model begins.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt.checkpoint import save_weights
from transformer_mt.config import Config, DataConfig, TrainConfig
from transformer_mt.config.load import dump_config
from transformer_mt.config.resolve import with_keys_of
from transformer_mt.config.root import Halves
from transformer_mt.corpora.seen_sentences import SeenSentences
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError
from transformer_mt.files import cache_root, wait_for_folder, write_text
from transformer_mt.model.build_model import build_model
from transformer_mt.run_folder import RunFolder

_FORMAT = 2  # of the runs in the cache
_SAME = (
    "d_model", "d_ff", "num_heads", "norm", "feed_forward", "position", "embedding_norm",
    "tie_embeddings", "attention", "norm_kind", "qk_norm", "num_kv_heads", "share_layers",
)  # fmt: skip
"""Keys of `model` that must be the same in a half and in the whole."""


def joined_halves(config: Config, halves: Halves) -> RunFolder:
    """The run in the cache that has the weights of the halves, and random ones elsewhere. InputError, with
    all reasons, where the halves do not fit the config or each other.
    """
    runs = {part: RunFolder(folder) for part, folder in halves.folders.items()}
    configs = {part: _config_of(part, run) for part, run in runs.items()}
    joined = _joined_config(config, configs)
    if reasons := _reasons(joined, configs, halves):
        raise InputError("\n".join(reasons))
    digests = [str(run.weights_digest()) for run in runs.values()]
    sections = {name: getattr(joined, name).model_dump() for name in ("model", "tokenizer")}
    data = joined.data
    languages = data.directions, data.language_pieces, data.max_length
    facts = [_FORMAT, sections, languages, joined.seed, list(runs), digests]
    root = cache_root() / "joined"
    root.mkdir(parents=True, exist_ok=True)
    out = root / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
    with wait_for_folder(root):
        if not out.exists():
            _write(out, joined, runs)
    return RunFolder(out)


def _config_of(part: str, run: RunFolder) -> Config:
    config = run.config()
    run.check_weights()
    if config.model.kind != part:
        raise InputError(
            f"`init_from.{part}` must be a run with model.kind: {part}, but {run} has {config.model.kind}"
        )
    return config


def _joined_config(config: Config, halves: dict[str, Config]) -> Config:
    """The config of the whole: keys it leaves out are those of the halves."""
    filled = config
    for half in halves.values():
        filled = with_keys_of(filled, _as_whole(half), ("model", "tokenizer"))
    given = config.model.model_fields_set
    layers = {
        f"num_{part}_layers": getattr(half.model, f"num_{part}_layers")
        for part, half in halves.items()
        if f"num_{part}_layers" not in given
    }
    # A half alone says nothing of the depth of the other one.
    layers |= {
        key: getattr(config.model, key)
        for part in ("encoder", "decoder")
        if part not in halves and (key := f"num_{part}_layers")
    }
    model = filled.model.model_copy(update={"kind": "transformer", **layers})
    tokenizer = filled.tokenizer.model_copy(update={"shared": len(halves) == 1, "file": None})
    # Keys of the training that begins with the joined model are left out.
    of_training = ("new_languages", "new_pieces", "changes")
    usual = {key: DataConfig.model_fields[key].get_default(call_default_factory=True) for key in of_training}
    data = filled.data.model_copy(update=usual)
    sections = {"model": model, "tokenizer": tokenizer, "data": data, "train": TrainConfig()}
    return filled.model_copy(update={**sections, "init_from": None})


def _as_whole(half: Config) -> Config:
    return half.model_copy(update={"model": half.model.model_copy(update={"kind": "transformer"})})


def _reasons(joined: Config, configs: dict[str, Config], halves: Halves) -> list[str]:
    """Why the halves do not fit: all at once."""
    reasons = []
    if joined.model.decoder_start != "bos":
        reasons.append(f"`model.decoder_start` must be bos, but is {joined.model.decoder_start}")
    for part, half in configs.items():
        keys = {f"model.{key}": (getattr(joined.model, key), getattr(half.model, key)) for key in _SAME}
        if part == "decoder":
            keys["model.output_bias"] = joined.model.output_bias, half.model.output_bias
        depth = f"num_{part}_layers"
        keys[f"model.{depth}"] = getattr(joined.model, depth), getattr(half.model, depth)
        if half.model.has_max_positions:
            keys["data.max_length"] = joined.data.max_length, half.data.max_length
        reasons += [
            f"`{key}` must be {theirs!r}, as in {halves.folders[part]}, but is {left!r}"
            for key, (left, theirs) in keys.items()
            if left != theirs
        ]
    return reasons


def _write(out: Path, config: Config, runs: dict[str, RunFolder]) -> None:
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        run = RunFolder(unfinished)
        write_text(run.config_file, dump_config(config, comments=True))
        tokenizer = Tokenizer(*(model for half in runs.values() for model in half.tokenizer().models))
        tokenizer.save(unfinished)
        weights = {part: half.weights() for part, half in runs.items()}
        save_weights(run.weights_file, _weights(config, tokenizer, weights))
        facts: dict[str, Any] = {"halves": {part: str(half) for part, half in runs.items()}}
        write_text(run.parent_file, json.dumps(facts, indent=1) + "\n")
        SeenSentences.inherited_from([half.seen() for half in runs.values()]).write(run.seen_file)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _weights(config: Config, tokenizer: Tokenizer, halves: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    sizes = tokenizer.src.vocab_size(), tokenizer.tgt.vocab_size()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = build_model(config.model, *sizes, tokenizer.shared, config.data.max_length)
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    for part, half in halves.items():
        for name, tensor in half.items():
            if part == "encoder" and name.startswith(("head.", "output.")):
                continue  # what predicts masked pieces
            if name == "src_embedding.positions.embedding.weight":
                tensor = tensor[1:]  # an encoder alone has BOS at the first position
            if name not in weights and name == "tgt_embedding.tokens.weight":
                name = "src_embedding.tokens.weight"  # one matrix for all
            if name in weights:
                weights[name] = tensor
    return weights
