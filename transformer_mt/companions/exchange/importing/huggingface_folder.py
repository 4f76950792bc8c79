"""Reads models in the layout of the Hugging Face hub, without its libraries: Marian (such as OPUS-MT),
M2M-100 (such as NLLB) and Pegasus.
"""

from pathlib import Path
from typing import Any

from transformer_mt.companions.exchange.importing.foreign_model import (
    ForeignModel,
    languages_of,
    papers_in,
    read_json,
    read_tensors,
)
from transformer_mt.companions.exchange.importing.marian import (
    m2m_tokenizer,
    marian_tokenizer,
    numbered_by_its_model,
)
from transformer_mt.companions.exchange.layouts import BIAS, weights_of
from transformer_mt.config.model_section import ModelConfig
from transformer_mt.errors import InputError
from transformer_mt.settings.part import PartName

_NORMS = {"marian": "post", "pegasus": "pre", "m2m_100": "pre"}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "silu", "silu": "silu"}


def read_huggingface_folder(folder: Path) -> ForeignModel:
    """The model in the folder. InputError with all reasons if this project cannot represent it exactly."""
    config = read_json(folder / "config.json")
    kind = config.get("model_type")
    if kind not in _NORMS:
        *others, last = _NORMS
        raise InputError(f"{folder}: model_type must be {', '.join(others)} or {last}, but is {kind}")
    facts = read_json(folder / "tokenizer_config.json", {})
    is_m2m = kind == "m2m_100"
    tokenizer = (m2m_tokenizer if is_m2m else marian_tokenizer)(folder, config, facts)
    tensors = read_tensors(folder)
    special = tokenizer.numberings[-1].special
    has_bias = special["bos"] == special["pad"] or (BIAS in tensors and bool(tensors[BIAS].any()))
    model = _model(folder, config, tokenizer.shared, has_bias)
    generation = config | read_json(folder / "generation_config.json", {})
    stated = (
        facts.get("source_lang") or facts.get("src_lang"),
        facts.get("target_lang") or facts.get("tgt_lang"),
    )
    source, targets = languages_of(folder, tokenizer, *stated)
    pieces: bool | str = "both" if is_m2m else any(piece.startswith(">>") for piece in tokenizer.control_ids)
    return ForeignModel(
        architecture=str(kind),
        model=model.model_dump(),
        decode=_decode(generation),
        max_length=int(config["max_position_embeddings"]),
        tokenizer=numbered_by_its_model(tokenizer),
        weights=weights_of(folder, model, tensors, tokenizer.numberings),
        source_lang=source,
        target_langs=targets,
        language_pieces=pieces or "auto",
        papers=papers_in(folder),
    )


def _model(folder: Path, config: dict[str, Any], shared: bool, has_bias: bool) -> ModelConfig:
    """The keys of `model`. InputError, with all reasons, where a field has a value that is not ours."""
    kind = config["model_type"]
    activation = config.get("activation_function", "relu" if kind == "m2m_100" else "gelu")
    # (present value, required value) of each field; any other value means a different network
    fields = {
        "scale_embedding": (config.get("scale_embedding", kind == "m2m_100"), True),
        "normalize_before": (config.get("normalize_before", kind != "marian"), kind != "marian"),
        "normalize_embedding": (config.get("normalize_embedding", False), False),
        "decoder_attention_heads": (
            config.get("decoder_attention_heads"), config.get("encoder_attention_heads"),
        ),
        "decoder_ffn_dim": (config.get("decoder_ffn_dim"), config.get("encoder_ffn_dim")),
    }  # fmt: skip
    reasons = [
        f"{key} must be {must}, but is {present}"
        for key, (present, must) in fields.items()
        if present != must
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
        norm=PartName(_NORMS[kind]),
        feed_forward=PartName(_ACTIVATIONS[activation]),
        position=PartName("sinusoidal_fairseq" if kind == "m2m_100" else "sinusoidal"),
        tie_embeddings=is_tied,
        output_bias=has_bias,
        decoder_start="eos" if kind == "m2m_100" else "bos",
    )


def _decode(generation: dict[str, Any]) -> dict[str, Any]:
    """The search that the model's authors chose."""
    decode: dict[str, Any] = {"split_sentences": True}
    if beams := generation.get("num_beams"):
        decode["beam"] = int(beams)
    if (penalty := generation.get("length_penalty")) is not None:
        decode["length_penalty"] = float(penalty)
    if generation.get("early_stopping") is True:
        decode["stop_early"] = True
    if longest := generation.get("max_length"):
        decode["max_length"] = int(longest) - 1  # theirs counts the piece the decoder begins with
    return decode
