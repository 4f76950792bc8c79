"""The registry of parts: the classes that words of a config or an option stand for.

A part has a kind, a name and a class. Our own parts are in the table below, an installed package brings its
parts in the same form (companion.py), and a program calls `register`. All are named, loaded and checked
alike. Parts of the table and of packages are imported only when they are used.
"""

import difflib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from typing import Any, NamedTuple, get_args

from transformer_mt.companion import Kind, brought, companions, resolve
from transformer_mt.errors import InputError

OURS: Mapping[Kind, Mapping[str, str]] = {
    "attention_score": {
        "scaled_dot": "transformer_mt.model.variants.attention_scores:ScaledDot",
        "dot": "transformer_mt.model.variants.attention_scores:Dot",
        "general": "transformer_mt.model.variants.attention_scores:General",
        "additive": "transformer_mt.model.variants.attention_scores:Additive",
        "cosine": "transformer_mt.model.variants.attention_scores:Cosine",
        "euclidean": "transformer_mt.model.variants.attention_scores:Euclidean",
        "concat": "transformer_mt.model.variants.attention_scores:Concat",
        "location": "transformer_mt.model.variants.attention_scores:Location",
    },
    "position": {
        "sinusoidal": "transformer_mt.model.positions:SinusoidalPositions",
        "sinusoidal_marian": "transformer_mt.model.positions:MarianPositions",
        "sinusoidal_fairseq": "transformer_mt.model.positions:FairseqPositions",
        "learned": "transformer_mt.model.positions:LearnedPositions",
        "relative": "transformer_mt.model.variants.position_bias:Relative",
        "rotary": "transformer_mt.model.variants.position_bias:Rotary",
        "alibi": "transformer_mt.model.variants.position_bias:Alibi",
        "none": "transformer_mt.model.positions:NoPositions",
    },
    "norm": {
        "layer": "transformer_mt.model.attention:LayerNorm",
        "rms": "transformer_mt.model.attention:RMSNorm",
    },
    "feed_forward": {
        "relu": "transformer_mt.model.transformer:FeedForward",
        "gelu": "transformer_mt.model.transformer:GeluFeedForward",
        "silu": "transformer_mt.model.transformer:SiluFeedForward",
        "swiglu": "transformer_mt.model.transformer:GatedFeedForward",
    },
    "residual": {
        "pre": "transformer_mt.model.transformer:PreNorm",
        "post": "transformer_mt.model.transformer:PostNorm",
    },
    "loss": {"cross_entropy": "transformer_mt.update.loss:CrossEntropy"},
    "optimizer": {
        "adamw": "transformer_mt.update.optimizer:AdamW",
        "adam": "transformer_mt.update.optimizer:Adam",
        "muon": "transformer_mt.update.optimizer:MuonAndAdamW",
    },
    "schedule": {
        "inverse_sqrt": "transformer_mt.update.schedule:InverseSqrt",
        "linear": "transformer_mt.update.schedule:LinearDecay",
        "cosine": "transformer_mt.update.schedule:CosineDecay",
        "constant": "transformer_mt.update.schedule:ConstantRate",
    },
    # In the order in which errors show them; the key of a corpus says its kind.
    "corpus": {
        "hub": "transformer_mt.corpora.hub:HubCorpus",
        "source": "transformer_mt.corpora.line_files:FilesCorpus",
        "file": "transformer_mt.corpora.file:FileCorpus",
        "opus": "transformer_mt.corpora.opus:OpusCorpus",
        "toy": "transformer_mt.corpora.toy:ToyCorpus",
        "text": "transformer_mt.corpora.line_files:TextCorpus",
        "imported": "transformer_mt.corpora.corpus:ImportedCorpus",
        "sacrebleu": "transformer_mt.corpora.sacrebleu_sets:SacrebleuCorpus",
        "from_train": "transformer_mt.corpora.held_out:FromTrainCorpus",
    },
    "objective": {
        "translation": "transformer_mt.settings.objectives:Translation",
        "denoise": "transformer_mt.data.changes.objectives:Denoising",
        "masked_lm": "transformer_mt.settings.objectives:MaskedLanguageModel",
        "causal_lm": "transformer_mt.settings.objectives:CausalLanguageModel",
        "classification": "transformer_mt.settings.objectives:Classification",
    },
    "metric": {
        "BLEU": "transformer_mt.evaluation.metrics:bleu",
        "chrF": "transformer_mt.evaluation.metrics:chrf",
        "chrF++": "transformer_mt.evaluation.metrics:chrf_plus_plus",
        "TER": "transformer_mt.evaluation.metrics:ter",
        "spBLEU": "transformer_mt.evaluation.metrics:spbleu",
        "exact match": "transformer_mt.evaluation.metrics:exact_match",
        "WER": "transformer_mt.evaluation.metrics:wer",
        "CER": "transformer_mt.evaluation.metrics:cer",
    },
    # In the order in which they see a line. Protection comes first, because the other stages keep protected
    # text whole. The last stages see results; `ends` comes before `flags`, which judges them.
    "stage": {
        "protection": "transformer_mt.translation.stages.protected_text:Protection",
        "edges": "transformer_mt.translation.stages.text_stages:Edges",
        "sentences": "transformer_mt.translation.stages.text_stages:SentenceSplitting",
        "capitals": "transformer_mt.translation.stages.text_stages:Capitals",
        "unchanged": "transformer_mt.translation.stages.text_stages:Unchanged",
        "ends": "transformer_mt.translation.stages.text_stages:MatchingEnds",
        "flags": "transformer_mt.translation.stages.text_stages:Flags",
        "confidence": "transformer_mt.translation.stages.text_stages:Confidence",
    },
    "engine": {"torch": "transformer_mt.translation.engines.torch_engine:TorchEngine"},
    "logger": {
        "tensorboard": "transformer_mt.run.loggers:TensorBoard",
        "wandb": "transformer_mt.run.loggers:WeightsAndBiases",
    },
    "preparation_engine": {"local": "transformer_mt.data.preparation.store:LocalEngine"},
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
        "model.attention.score",
        "num_heads, head_width",
        "transformer_mt.model.variants.attention_scores:AttentionScore",
    ),
    "position": KindFacts(
        "model.position", "num_heads, head_width", "transformer_mt.model.variants.position_bias:PositionBias"
    ),
    "norm": KindFacts("model.norm_kind", "width", "torch.nn:Module"),
    "feed_forward": KindFacts("model.feed_forward", "d_model, d_ff, dropout", "torch.nn:Module"),
    "residual": KindFacts("model.norm", "norm, dropout", "transformer_mt.model.transformer:Residual"),
    "loss": KindFacts("train.loss", "train_config, settings", "transformer_mt.update.loss:Loss"),
    "optimizer": KindFacts("train.optimizer", "parameter_groups, lr", "torch.optim:Optimizer"),
    "schedule": KindFacts("train.schedule", "train_config", "transformer_mt.update.schedule:Schedule"),
    "objective": KindFacts(
        "objective (of a corpus)", "tokenizer, config", "transformer_mt.settings.objectives:TextObjective"
    ),
    "corpus": KindFacts("data.train", "its keys", "transformer_mt.corpora.corpus:Corpus"),
    "change": KindFacts(
        "data.changes", "rows, config, tokenizer", "transformer_mt.data.changes.change:Change"
    ),
    "stage": KindFacts("decode.stages", "", "transformer_mt.translation.stages.stage:Stage"),
    "resource": KindFacts(
        "--NAME FILE", "file, languages", "transformer_mt.translation.stages.call:Resource"
    ),
    "selection": KindFacts(
        "Request.wanted", "wanted, beam, tokenizer, device", "transformer_mt.search.beam:Selection"
    ),
    "engine": KindFacts(
        "engine (of a translation)",
        "run, config, request",
        "transformer_mt.translation.engines.engine:Engine",
    ),
    "rule": KindFacts("decode.rules", "tokenizer, device", "transformer_mt.search.rules:Rule"),
    "metric": KindFacts(
        "evaluate.metrics, train.monitor",
        "evaluate_config, target_lang",
        "transformer_mt.evaluation.metrics:Metric",
    ),
    "logger": KindFacts("train.loggers", "folder, config, step", "transformer_mt.run.loggers:Logger"),
    "preparation_engine": KindFacts("data.preparation.engine", ""),
    "export_format": KindFacts("to", "command_arguments"),
    "document_format": KindFacts("format", "", "transformer_mt.text.file_formats:DocumentFormats"),
}


_REGISTERED: dict[Kind, dict[str, tuple[Callable[..., Any], str]]] = {}
"""Parts of this program, and where each comes from."""


def register(kind: Kind, name: str, part: Callable[..., Any], origin: str = "") -> None:
    """Register a part, so that configs which this program reads from now on can name it. `part` is a class,
    or a function that is called like one. `origin` tells others where the part comes from; by default its
    module. A name may be registered again.

    Raises InputError for an unknown kind, or a name that this package or an installed companion has.
    """
    if kind not in get_args(Kind):
        near = difflib.get_close_matches(str(kind), get_args(Kind), n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(
            f"the kind of a part must be one of {', '.join(get_args(Kind))}, but is {kind!r}{hint}"
        )
    if name in OURS.get(kind, {}) or name in brought(kind):
        raise InputError(f"there is a {_in_words(kind)} {name} already; register yours under another name")
    base = KINDS[kind].base
    if not (callable(part) or (base and isinstance(part, resolve(base)))):
        raise InputError(f"the {_in_words(kind)} {name} must be a class, but is {part!r}")
    _REGISTERED.setdefault(kind, {})[name] = (
        part,
        origin or f"{part.__module__}.{getattr(part, '__qualname__', type(part).__qualname__)}",
    )


def unregister(kind: Kind, name: str) -> None:
    """Forget a part of this program."""
    del _REGISTERED[kind][name]


def _in_words(kind: Kind) -> str:
    return kind.replace("_", " ")


def names_of(kind: Kind) -> tuple[list[str], list[str]]:
    """The names of the parts of a kind: ours, and those of companions and of this program."""
    ours = OURS.get(kind, {})
    others = [*brought(kind), *_REGISTERED.get(kind, {})]
    return list(ours), [name for name in others if name not in ours]


def every_name(kind: Kind) -> list[str]:
    """All names of a kind, ours first."""
    ours, others = names_of(kind)
    return [*ours, *others]


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
    known = every_name(kind)
    near = difflib.get_close_matches(name, known, n=1)
    raise InputError(
        f"there is no {_in_words(kind)} {name}; those installed are {', '.join(known)}"
        + (f"; did you mean {near[0]}?" if near else "")
    )


@cache
def _packages() -> Mapping[str, list[str]]:
    """The installed packages by their modules. Reading them takes as long as a start of Python."""
    return packages_distributions()


def origin_of(kind: Kind, name: str) -> str:
    """Where a part from outside this package comes from: its class, package and version. Empty for ours."""
    if name in (registered := _REGISTERED.get(kind, {})):
        place = registered[name][1]
    else:
        place = "" if is_ours(kind, name) else brought(kind).get(name, "").replace(":", ".")
    module = place.split(".")[0]
    if not place or module == __package__:
        return ""
    for package in _packages().get(module, ()):
        try:
            return f"{place} of {package} {version(package)}"
        except PackageNotFoundError:
            continue
    return place
