"""The registry of parts: the classes that words of a config or an option stand for.

A part has a kind, a name and a class. Ours stand in the table below; those of others are brought by their
packages (companion.py). Both are named, loaded and checked alike, and imported when they are used.
"""

import difflib
from collections.abc import Mapping
from typing import Any

from transformer_mt.companion import Kind, brought, companions, resolve
from transformer_mt.errors import InputError

_MODEL, _TRAINING, _EVALUATION = (f"transformer_mt.{name}" for name in ("model", "training", "evaluation"))
_SCORES, _BIAS = f"{_MODEL}.variants.attention_scores", f"{_MODEL}.variants.position_bias"

OURS: Mapping[Kind, Mapping[str, str]] = {
    "attention_score": {
        "scaled_dot": f"{_SCORES}:ScaledDot",
        "dot": f"{_SCORES}:Dot",
        "general": f"{_SCORES}:General",
        "additive": f"{_SCORES}:Additive",
        "cosine": f"{_SCORES}:Cosine",
        "euclidean": f"{_SCORES}:Euclidean",
        "concat": f"{_SCORES}:Concat",
        "location": f"{_SCORES}:Location",
    },
    "position": {
        "sinusoidal": f"{_MODEL}.positions:SinusoidalPositions",
        "sinusoidal_fairseq": f"{_MODEL}.positions:FairseqPositions",
        "learned": f"{_MODEL}.positions:LearnedPositions",
        "relative": f"{_BIAS}:Relative",
        "rotary": f"{_BIAS}:Rotary",
        "alibi": f"{_BIAS}:Alibi",
        "none": f"{_MODEL}.positions:NoPositions",
    },
    "loss": {"cross_entropy": f"{_TRAINING}.update.loss_kinds:CrossEntropy"},
    "metric": {
        "BLEU": f"{_EVALUATION}.sacrebleu_metrics:bleu",
        "chrF": f"{_EVALUATION}.sacrebleu_metrics:chrf",
        "chrF++": f"{_EVALUATION}.sacrebleu_metrics:chrf_plus_plus",
        "TER": f"{_EVALUATION}.sacrebleu_metrics:ter",
        "spBLEU": f"{_EVALUATION}.sacrebleu_metrics:spbleu",
        "exact match": f"{_EVALUATION}.error_rates:exact_match",
        "WER": f"{_EVALUATION}.error_rates:wer",
        "CER": f"{_EVALUATION}.error_rates:cer",
    },
    "logger": {
        "tensorboard": f"{_TRAINING}.reporting.loggers:TensorBoard",
        "wandb": f"{_TRAINING}.reporting.loggers:WeightsAndBiases",
    },
    "preparation_engine": {"local": "transformer_mt.data.preparation.preparation_stage:LocalEngine"},
}


def names_of(kind: Kind) -> tuple[list[str], list[str]]:
    """The names of the parts of a kind: ours, and those that companions bring."""
    ours = OURS.get(kind, {})
    return list(ours), [name for name in brought(kind) if name not in ours]


def is_ours(kind: Kind, name: str) -> bool:
    return name in OURS.get(kind, {})


def load_part(kind: Kind, name: str) -> Any:
    """The class of a part. InputError for a name that nobody brings, WorkError for one that cannot be
    imported.
    """
    if is_ours(kind, name):
        return resolve(OURS[kind][name])
    for companion, brings in companions().items():
        if value := brings.kinds.get(kind, {}).get(name):
            return resolve(value, companion)
    known = [name for names in names_of(kind) for name in names]
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        f"{name}: must be a {kind.replace('_', ' ')} that is installed ({', '.join(known)})"
        + (f"; did you mean {near[0]}?" if near else "")
    )
