"""Models of Marian, as OPUS-MT's, and of Pegasus in the layout of the Hugging Face hub, read without its
libraries.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_mt.config.model import ModelConfig
from transformer_mt.data.vocabulary.numbering import BOS, PAD, Numbering
from transformer_mt.data.vocabulary.tokenizer import Tokenizer, processor_of
from transformer_mt.errors import InputError
from transformer_mt.importing.foreign_model import ForeignModel, languages_of, papers_in
from transformer_mt.importing.weight_files import read_tensors
from transformer_mt.layouts import huggingface
from transformer_mt.layouts.huggingface import BIAS, POSITIONS, positions_there

_NORMS = {"marian": "post", "pegasus": "pre"}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}
# Weights that were stored in half precision differ from their formula by so much.
_HALF = 2e-3


def read_huggingface_folder(folder: Path) -> ForeignModel:
    """The model in the folder. InputError, with all reasons, where it is not one that can be held exactly."""
    config = _read_json(folder / "config.json")
    facts = _read_json(folder / "tokenizer_config.json", {})
    tokenizer = _tokenizer(folder, config, facts)
    tensors = read_tensors(folder)
    starts_with_pad = tokenizer.numberings[-1].special["bos"] == tokenizer.numberings[-1].special["pad"]
    has_bias = starts_with_pad or (BIAS in tensors and bool(tensors[BIAS].any()))
    model = _model(folder, config, tokenizer.shared, has_bias)
    generation = config | _read_json(folder / "generation_config.json", {})
    source, targets = languages_of(folder, tokenizer, facts.get("source_lang"), facts.get("target_lang"))
    return ForeignModel(
        architecture=config["model_type"],
        model=model.model_dump(),
        decode=_decode(generation),
        max_length=int(config["max_position_embeddings"]),
        tokenizer=_numbered_by_its_model(tokenizer),
        weights=weights_of(folder, model, tensors, tokenizer.numberings),
        source_lang=source,
        target_langs=targets,
        has_language_pieces=any(piece.startswith(">>") for piece in tokenizer.control_ids),
        papers=papers_in(folder),
    )


def _read_json(file: Path, default: Any = None) -> dict[str, Any]:
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if default is None:
            raise InputError(f"{file}: no such file; is the folder a model's?") from None
        facts = default
    except (OSError, ValueError):
        raise InputError(f"{file}: must be JSON in UTF-8, but is not; download it again") from None
    if not isinstance(facts, dict):
        raise InputError(f"{file}: must be an object of JSON, but is not")
    return facts


def _model(folder: Path, config: dict[str, Any], shared: bool, has_bias: bool) -> ModelConfig:
    """The keys of `model`. InputError, with all reasons, where a field has a value that is not ours."""
    kind = config.get("model_type")
    if kind not in _NORMS:
        raise InputError(f"{folder}: model_type must be {' or '.join(_NORMS)}, but is {kind}")
    activation = config.get("activation_function", "gelu")
    # (found, what it must be) of fields whose other values are another network
    fields = {
        "scale_embedding": (config.get("scale_embedding", False), True),
        "normalize_before": (config.get("normalize_before", kind == "pegasus"), kind == "pegasus"),
        "normalize_embedding": (config.get("normalize_embedding", False), False),
        "decoder_attention_heads": (
            config.get("decoder_attention_heads"), config.get("encoder_attention_heads"),
        ),
        "decoder_ffn_dim": (config.get("decoder_ffn_dim"), config.get("encoder_ffn_dim")),
    }  # fmt: skip
    reasons = [
        f"{key} must be {must}, but is {found}" for key, (found, must) in fields.items() if found != must
    ]
    if activation not in _ACTIVATIONS:
        reasons.append(f"activation_function must be {', '.join(_ACTIVATIONS)}, but is {activation}")
    is_tied = config.get("tie_word_embeddings", True)
    if is_tied and config.get("share_encoder_decoder_embeddings", True) != shared:
        raise InputError(
            f"{folder}: share_encoder_decoder_embeddings must be {shared}, as the vocabularies are, but is "
            f"{not shared}"
        )
    if reasons:
        raise InputError("\n".join(f"{folder}: {reason}" for reason in reasons))
    return ModelConfig(
        d_model=config["d_model"],
        d_ff=config["encoder_ffn_dim"],
        num_heads=config["encoder_attention_heads"],
        num_encoder_layers=config["encoder_layers"],
        num_decoder_layers=config["decoder_layers"],
        dropout=float(config.get("dropout", 0.1)),
        attention_dropout=float(config.get("attention_dropout", 0.0)),
        ffn_dropout=float(config.get("activation_dropout", 0.0)),
        norm=_NORMS[kind],  # type: ignore[arg-type]
        activation=_ACTIVATIONS[activation],  # type: ignore[arg-type]
        tie_embeddings=is_tied,
        output_bias=has_bias,
    )


def _tokenizer(folder: Path, config: dict[str, Any], facts: dict[str, Any]) -> Tokenizer:
    """Two SentencePiece models, and one vocabulary or two."""
    try:
        models = [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
    except OSError as error:
        raise InputError(f"{folder}: must hold source.spm and target.spm, but: {error.strerror}") from None
    is_separate = facts.get("separate_vocabs", (folder / "target_vocab.json").exists())
    vocabularies = ["vocab.json", *["target_vocab.json"] * bool(is_separate)]
    numberings = [_numbering(folder / name, config, facts) for name in vocabularies]
    if models[0] == models[1]:
        models = models[:1]
    tokenizer = Tokenizer(*models, numberings=numberings)
    size = tokenizer.src.vocab_size()
    known = size - sum(tokenizer.src.is_control(i) for i in range(size))
    if known < size // 4:
        raise InputError(
            f"{folder}: vocab.json must hold the pieces of source.spm, but has {known} of them among its "
            f"{size}"
        )
    return tokenizer


def _numbered_by_its_model(tokenizer: Tokenizer) -> Tokenizer:
    """Without a numbering where the SentencePiece model has the same, as in what this project exports."""
    if len(tokenizer.models) == 1 and len(tokenizer.numberings) == 1:
        processor = processor_of(tokenizer.models[0])
        own = [processor.id_to_piece(i) for i in range(processor.vocab_size())]
        if own == tokenizer.numberings[0].pieces:
            return Tokenizer(tokenizer.models[0])
    return tokenizer


def _numbering(file: Path, config: dict[str, Any], facts: dict[str, Any]) -> Numbering:
    there = _read_json(file)
    names = {name: str(facts.get(f"{name}_token", default)) for name, default in
             (("unk", "<unk>"), ("eos", "</s>"), ("pad", "<pad>"))}  # fmt: skip
    if missing := [piece for piece in names.values() if piece not in there]:
        raise InputError(f"{file}: must hold {', '.join(names.values())}, but has no {missing[0]}")
    special = {name: int(there[piece]) for name, piece in names.items()}
    start = config.get("decoder_start_token_id", special["pad"])
    is_joint = config.get("decoder_vocab_size", len(there)) == len(there)
    special["bos"] = int(start) if is_joint and 0 <= int(start) < len(there) else special["pad"]
    if special["bos"] == special["eos"]:
        raise InputError(f"{file.parent}: decoder_start_token_id must not be that of {names['eos']}, but is")
    return Numbering.of({str(piece): int(i) for piece, i in there.items()}, special)


def weights_of(
    folder: Path, model: ModelConfig, tensors: Mapping[str, Tensor], numberings: list[Numbering]
) -> dict[str, Tensor]:
    """Our weights of theirs. InputError where one is missing, has another size, or is not of this network."""
    needed = {place.theirs: place for place in huggingface.places(model, len(numberings) == 1)}
    if missing := [name for name in needed if name not in tensors]:
        raise InputError(f"{folder}: the weights must hold {missing[0]}, but do not")
    extra = [name for name in tensors if name not in needed and not _is_known(name)]
    if extra:
        raise InputError(f"{folder}: the weights hold {extra[0]}, which this kind of model does not have")
    for name in POSITIONS:
        if name in tensors:
            expected = positions_there(*tensors[name].shape)
            if not torch.allclose(tensors[name].float(), expected, atol=_HALF):
                raise InputError(f"{folder}: {name} must be sinusoids, but is not")
    for name, place in needed.items():
        if place.vocabulary is not None:
            size = len(numberings[0 if place.vocabulary == "src" else -1].order)
            if len(tensors[name]) != size:
                raise InputError(
                    f"{folder}: {name} must have {size} rows, one a piece, but has {len(tensors[name])}"
                )
    rows = [numbering.places() for numbering in numberings]
    return huggingface.from_huggingface(model, tensors, rows, never=(PAD, BOS))


def _is_known(name: str) -> bool:
    """Whether it is written beside what `places` names: a tied weight under another name, or a table."""
    return name in (BIAS, "lm_head.weight", *POSITIONS) or name.endswith(
        ("shared.weight", "embed_tokens.weight")
    )


def _decode(generation: dict[str, Any]) -> dict[str, Any]:
    """The search that the model's authors chose."""
    decode: dict[str, Any] = {"split_sentences": True}
    if beams := generation.get("num_beams"):
        decode["beam"] = int(beams)
    if (penalty := generation.get("length_penalty")) is not None:
        decode["length_penalty"] = float(penalty)
    if longest := generation.get("max_length"):
        decode["max_length"] = int(longest) - 1  # theirs counts the piece the decoder begins with
    return decode
