"""Marian's own names of weights for those of transformers; matrices are stored the other way round."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

_NORMS = ("ln_scale", "ln_bias")


def names(encoder_layers: int, decoder_layers: int, pre_norm: bool) -> Iterator[tuple[str, str]]:
    """(name in transformers, name in Marian) of all but embeddings and output."""
    after = "_pre" if pre_norm else ""
    for side, depth in (("encoder", encoder_layers), ("decoder", decoder_layers)):
        attentions = [("self_attn", "self"), ("encoder_attn", "context")][: 1 + (side == "decoder")]
        for number in range(depth):
            foreign, ours_name = f"model.{side}.layers.{number}", f"{side}_l{number + 1}"
            for attention, short in attentions:
                for part, letter in (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("out_proj", "o")):
                    yield f"{foreign}.{attention}.{part}.weight", f"{ours_name}_{short}_W{letter}"
                    yield f"{foreign}.{attention}.{part}.bias", f"{ours_name}_{short}_b{letter}"
                for kind, norm in zip(("weight", "bias"), _NORMS):
                    yield f"{foreign}.{attention}_layer_norm.{kind}", f"{ours_name}_{short}_Wo_{norm}{after}"
            for part, digit in (("fc1", "1"), ("fc2", "2")):
                yield f"{foreign}.{part}.weight", f"{ours_name}_ffn_W{digit}"
                yield f"{foreign}.{part}.bias", f"{ours_name}_ffn_b{digit}"
            for kind, norm in zip(("weight", "bias"), _NORMS):
                yield f"{foreign}.final_layer_norm.{kind}", f"{ours_name}_ffn_ffn_{norm}{after}"
        if pre_norm:
            for kind, norm in zip(("weight", "bias"), _NORMS):
                yield f"model.{side}.layer_norm.{kind}", f"{side}_top_{norm}"


def is_transposed(name: str) -> bool:
    """True if Marian has the matrix of this name in transformers as its transpose."""
    return name.endswith(("_proj.weight", "fc1.weight", "fc2.weight"))


def with_pad(rows: np.ndarray) -> np.ndarray:
    """Rows of a vocabulary and after them a row of zeros: the vector that Marian's decoder begins with."""
    return np.concatenate([rows, np.zeros_like(rows[:1])])


def embeddings(weights: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The matrices with a row for each piece, by their names in transformers, each with a row for <pad>."""
    tensors = {}
    if "Wemb" in weights:
        tensors["model.shared.weight"] = with_pad(weights["Wemb"])
    else:
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_tokens.weight"] = with_pad(weights[f"{side}_Wemb"])
    if "decoder_ff_logit_out_W" in weights:
        tensors["lm_head.weight"] = with_pad(weights["decoder_ff_logit_out_W"].T)
    elif "decoder_ff_logit_out_Wt" in weights:
        tensors["lm_head.weight"] = with_pad(weights["decoder_ff_logit_out_Wt"])
    return tensors
