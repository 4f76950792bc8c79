"""The registry of parts: the classes that words of a config or an option stand for.

A part has a kind, a name and a class. Ours stand in the table below, an installed package brings its own in
the same form (companion.py), and a program calls `register`. All are named, loaded and checked alike; those
of the table and of packages are imported when they are used.
"""

import difflib
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any, NamedTuple, get_args

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
    "norm": {"layer": f"{_MODEL}.norm:LayerNorm", "rms": f"{_MODEL}.norm:RMSNorm"},
    "feed_forward": {
        "relu": f"{_MODEL}.transformer:FeedForward",
        "gelu": f"{_MODEL}.transformer:GeluFeedForward",
        "silu": f"{_MODEL}.transformer:SiluFeedForward",
        "swiglu": f"{_MODEL}.transformer:GatedFeedForward",
    },
    "residual": {"pre": f"{_MODEL}.transformer:PreNorm", "post": f"{_MODEL}.transformer:PostNorm"},
    "loss": {"cross_entropy": f"{_TRAINING}.update.loss_kinds:CrossEntropy"},
    "optimizer": {
        "adamw": f"{_TRAINING}.update.optimizer:AdamW",
        "adam": f"{_TRAINING}.update.optimizer:Adam",
        "muon": f"{_TRAINING}.update.optimizer:MuonAndAdamW",
    },
    "schedule": {
        "inverse_sqrt": f"{_TRAINING}.update.schedule:InverseSqrt",
        "linear": f"{_TRAINING}.update.schedule:LinearDecay",
        "cosine": f"{_TRAINING}.update.schedule:CosineDecay",
        "constant": f"{_TRAINING}.update.schedule:ConstantRate",
    },
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


class KindFacts(NamedTuple):
    """What parts of a kind have in common."""

    key: str
    """The key of the YAML, or the option, that names them."""
    arguments: str
    """The arguments that a part is built with; one that has a section `Settings` gets `settings`, too."""
    base: str = ""
    """The class that they extend; its class attributes say what a part goes with."""


KINDS: Mapping[Kind, KindFacts] = {
    "attention_score": KindFacts(
        "model.attention.score", "num_heads, head_width", f"{_SCORES}:AttentionScore"
    ),
    "position": KindFacts("model.position", "num_heads, head_width", f"{_BIAS}:PositionBias"),
    "norm": KindFacts("model.norm_kind", "width", "torch.nn:Module"),
    "feed_forward": KindFacts("model.feed_forward", "d_model, d_ff, dropout", "torch.nn:Module"),
    "residual": KindFacts("model.norm", "norm, dropout", f"{_MODEL}.transformer:Residual"),
    "loss": KindFacts("train.loss", "train_config, settings", f"{_TRAINING}.update.loss_kinds:Loss"),
    "optimizer": KindFacts("train.optimizer", "parameter_groups, lr", "torch.optim:Optimizer"),
    "schedule": KindFacts("train.schedule", "train_config", f"{_TRAINING}.update.schedule:Schedule"),
    "corpus": KindFacts("data.train", "its keys", "transformer_mt.corpora.corpus:Corpus"),
    "change": KindFacts(
        "data.changes", "rows, config, tokenizer", "transformer_mt.data.changes.change:Change"
    ),
    "stage": KindFacts("decode.stages", "", "transformer_mt.translation.stages.stage:Stage"),
    "rule": KindFacts("decode.rules", "tokenizer, device", "transformer_mt.search.rules:Rule"),
    "metric": KindFacts(
        "evaluate.metrics, train.monitor", "evaluate_config, target_lang", f"{_EVALUATION}.metric:Metric"
    ),
    "logger": KindFacts("train.loggers", "folder, config, step", f"{_TRAINING}.reporting.loggers:Logger"),
    "preparation_engine": KindFacts("data.preparation.engine", ""),
    "export_format": KindFacts("to", "command_arguments"),
}


_REGISTERED: dict[Kind, dict[str, tuple[Callable[..., Any], str]]] = {}
"""Parts of this program, and where each comes from."""


def register(kind: Kind, name: str, part: Callable[..., Any], origin: str = "") -> None:
    """Let configs that this program reads from now on name `part`: a class, or a function that makes one.
    `origin` tells others where it comes from; by default its module. A name may be registered again.

    Raises InputError for a name that this package or an installed companion has, or an unknown kind.
    """
    if kind not in get_args(Kind):
        near = difflib.get_close_matches(str(kind), get_args(Kind), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"a part must be of a kind ({', '.join(get_args(Kind))}), but is of {kind!r}{hint}")
    if name in OURS.get(kind, {}) or name in brought(kind):
        raise InputError(f"there is a {_in_words(kind)} {name} already; register yours under another name")
    if not callable(part):
        raise InputError(f"the {_in_words(kind)} {name} must be a class, but is {part!r}")
    _REGISTERED.setdefault(kind, {})[name] = part, origin or _place_of(part)


def unregister(kind: Kind, name: str) -> None:
    """Forget a part of this program."""
    del _REGISTERED[kind][name]


def _in_words(kind: Kind) -> str:
    return kind.replace("_", " ")


def _place_of(part: Any) -> str:
    return f"{part.__module__}.{getattr(part, '__qualname__', type(part).__qualname__)}"


def names_of(kind: Kind) -> tuple[list[str], list[str]]:
    """The names of the parts of a kind: ours, and those of companions and of this program."""
    ours = OURS.get(kind, {})
    others = [*brought(kind), *_REGISTERED.get(kind, {})]
    return list(ours), [name for name in others if name not in ours]


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
    if name in (registered := _REGISTERED.get(kind, {})):
        return registered[name][0]
    known = [name for names in names_of(kind) for name in names]
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        f"{name}: must be a {_in_words(kind)} that is installed ({', '.join(known)})"
        + (f"; did you mean {near[0]}?" if near else "")
    )


def origin_of(kind: Kind, name: str) -> str:
    """Where a part of others comes from: its class, and the package with its version. Empty for ours."""
    if name in (registered := _REGISTERED.get(kind, {})):
        place = registered[name][1]
    else:
        place = "" if is_ours(kind, name) else brought(kind).get(name, "").replace(":", ".")
    module = place.split(".")[0]
    if not place or module == __package__:
        return ""
    for package in packages_distributions().get(module, ()):
        try:
            return f"{place} of {package} {version(package)}"
        except PackageNotFoundError:
            continue
    return place
