"""Models as Marian writes them: an .npz file with the options in it, and vocabularies in YAML or as
SentencePiece models.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
import yaml

from transformer_mt.companions.exchange.importing.foreign_model import ForeignModel, languages_of, papers_in
from transformer_mt.companions.exchange.importing.huggingface_folder import weights_of
from transformer_mt.companions.exchange.layouts import marian
from transformer_mt.companions.exchange.layouts.huggingface import BIAS
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.data.vocabulary.tokenizer import Numbering, Tokenizer, processor_of
from transformer_mt.errors import InputError
from transformer_mt.settings.part import PartName

_OPTIONS = "special:model.yml"
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# What is around each sublayer and after the last layer: d is dropout, a the sum, n the norm.
_NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}
# Options whose other values are another network, and the value they must have; the first of a tuple is usual.
_ONLY: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-no-projection": (False,),
    "transformer-train-position-embeddings": (False,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-tied-layers": ([],),
    "lemma-dim-emb": (0,),
    "ulr": (False,),
}


def read_marian_npz(path: Path) -> ForeignModel:
    """The model in the file, or in a folder with one such file. InputError, with all reasons, where it is not
    one that can be held exactly.
    """
    file, decoder = _files(path)
    try:
        with np.load(file) as stored:
            weights = {name: stored[name] for name in stored.files}
        options = yaml.safe_load(weights.pop(_OPTIONS)[:-1].tobytes())
    except (OSError, ValueError, KeyError, BadZipFile, yaml.YAMLError) as error:
        reason = str(error).strip().split("\n")[0][:200]
        raise InputError(f"{file}: must be a model of Marian, but cannot be read: {reason}") from None
    norm = _check(file, options)
    tokenizer = _tokenizer(file, decoder, is_joint="Wemb" in weights)
    is_tied = not any(name.startswith("decoder_ff_logit_out_W") for name in weights)
    model = ModelConfig(
        d_model=options["dim-emb"],
        d_ff=options["transformer-dim-ffn"],
        num_heads=options["transformer-heads"],
        num_encoder_layers=options["enc-depth"],
        num_decoder_layers=options["dec-depth"],
        norm=PartName(norm),
        feed_forward=PartName(_ACTIVATIONS[options["transformer-ffn-activation"]]),
        tie_embeddings=is_tied,
        output_bias=True,
    )
    tensors = _tensors(file, model, weights)
    source, targets = languages_of(file.parent, tokenizer, None, None)
    return ForeignModel(
        architecture="marian",
        model=model.model_dump(),
        decode=_decode(decoder),
        max_length=512,
        tokenizer=tokenizer,
        weights=weights_of(file.parent, model, tensors, tokenizer.numberings),
        source_lang=source,
        target_langs=targets,
        language_pieces=any(piece.startswith(">>") for piece in tokenizer.control_ids) or "auto",
        papers=papers_in(file.parent),
    )


def _files(path: Path) -> tuple[Path, dict[str, Any]]:
    """The .npz file, and what decoder.yml says."""
    files = [path] if path.is_file() else sorted(path.glob("*.npz"))
    if len(files) != 1:
        raise InputError(f"{path}: must hold one .npz file, but holds {len(files)}; name the file")
    decoder = files[0].parent / "decoder.yml"
    said = yaml.safe_load(decoder.read_text(encoding="utf-8")) if decoder.exists() else {}
    return files[0], said if isinstance(said, dict) else {}


def _check(file: Path, options: dict[str, Any]) -> str:
    """Position of the norms. InputError, with all reasons, where an option is not one of ours."""
    reasons = [
        f"{key} must be {' or '.join(map(repr, values))}, but is {options[key]!r}"
        for key, values in _ONLY.items()
        if key in options and options[key] not in values
    ]
    around = tuple(
        str(options.get(f"transformer-{key}") or "")
        for key in ("preprocess", "postprocess", "postprocess-top")
    )
    if around not in _NORMS:
        reasons.append(
            "transformer-preprocess, -postprocess and -postprocess-top must be "
            f"{' or '.join(map(str, _NORMS))}, but are {around}"
        )
    if (activation := options.get("transformer-ffn-activation")) not in _ACTIVATIONS:
        reasons.append(f"transformer-ffn-activation must be {' or '.join(_ACTIVATIONS)}, but is {activation}")
    if reasons:
        raise InputError("\n".join(f"{file}: {reason}" for reason in reasons))
    return _NORMS[around]  # type: ignore[index]


def _tokenizer(file: Path, decoder: dict[str, Any], is_joint: bool) -> Tokenizer:
    folder = file.parent
    named = [folder / Path(str(name)).name for name in decoder.get("vocabs", [])]
    vocabularies = named or sorted([*folder.glob("*vocab*.yml"), *folder.glob("*vocab*.spm")])
    if not vocabularies or not all(vocabulary.exists() for vocabulary in vocabularies):
        raise InputError(
            f"{folder}: must hold the vocabularies that decoder.yml names, or vocab.yml, but does not"
        )
    models = [folder / f"{side}.spm" for side in ("source", "target")]
    if all(vocabulary.suffix == ".spm" for vocabulary in vocabularies):
        models = [vocabularies[0], vocabularies[-1]]
    numberings = [_numbering(vocabulary) for vocabulary in dict.fromkeys([vocabularies[0], vocabularies[-1]])]
    if is_joint:
        numberings = numberings[:1]
    elif len(numberings) == 1:
        numberings *= 2  # the same pieces, with vectors of their own on each side
    try:
        contents = [model.read_bytes() for model in dict.fromkeys(models)]
    except OSError as error:
        raise InputError(f"{folder}: must hold source.spm and target.spm, but: {error.strerror}") from None
    return Tokenizer(*dict.fromkeys(contents), numberings=numberings)


def _numbering(file: Path) -> Numbering:
    pieces = _pieces_of_model(file) if file.suffix == ".spm" else _pieces_of_yaml(file)
    if missing := [piece for piece in ("</s>", "<unk>") if piece not in pieces]:
        raise InputError(f"{file}: must hold </s> and <unk>, but has no {missing[0]}")
    foreign = {piece: i for piece, i in pieces.items() if piece != "<pad>"}
    foreign["<pad>"] = len(foreign)
    pad = foreign["<pad>"]
    return Numbering.of(foreign, {"pad": pad, "unk": foreign["<unk>"], "bos": pad, "eos": foreign["</s>"]})


def _pieces_of_model(file: Path) -> dict[str, int]:
    side = processor_of(file.read_bytes())
    return {side.id_to_piece(i): i for i in range(side.vocab_size())}


def _pieces_of_yaml(file: Path) -> dict[str, int]:
    """A loader of YAML would read some pieces as numbers, dates or nothing."""
    ids: dict[str, int] = {}
    text = re.sub(r"^\? (.*)\n: ", r"\1: ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for number, line in enumerate(text.split("\n"), start=1):
        match = re.fullmatch(r"(.+?): +(\d+)\s*", line)
        if match is None:
            if line.strip() not in ("", "---", "...") and not line.startswith("#"):
                raise InputError(f"{file}:{number}: must be a token and its number, but is {line[:60]!r}")
            continue
        piece = match[1]
        ids[yaml.safe_load(piece) if piece[0] in "\"'" else piece] = int(match[2])
    return ids


def _tensors(file: Path, model: ModelConfig, weights: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The weights by their names in transformers."""
    tensors: dict[str, np.ndarray] = {}
    pairs = marian.names(model.num_encoder_layers, model.num_decoder_layers, model.norm == "pre")
    try:
        tensors |= marian.embeddings(weights)
        for foreign, name in pairs:
            tensor = weights[name]
            tensors[foreign] = tensor.T if marian.is_transposed(foreign) else tensor.reshape(-1)
        bias = weights["decoder_ff_logit_out_b"].reshape(-1)
    except KeyError as error:
        raise InputError(f"{file}: the weights must hold {error.args[0]}, but do not") from None
    tensors[BIAS] = np.append(bias, 0.0).astype(bias.dtype)[None]
    return {name: torch.from_numpy(np.ascontiguousarray(tensor)) for name, tensor in tensors.items()}


def _decode(decoder: dict[str, Any]) -> dict[str, Any]:
    """The search that decoder.yml describes."""
    decode: dict[str, Any] = {"split_sentences": True}
    if beam := decoder.get("beam-size"):
        decode["beam"] = int(beam)
    if (normalize := decoder.get("normalize")) is not None:
        decode["length_penalty"] = float(normalize)
    return decode
