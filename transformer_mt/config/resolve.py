"""Turns the config that a user wrote into the config that is trained, using the facts known so far.

`resolve` applies the steps in order; each is a function from a config to a config. Nothing else changes the
config of a run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from transformer_mt.config.error_sentences import flat, marks, sentences
from transformer_mt.config.root import Config
from transformer_mt.config.train_section import TrainConfig
from transformer_mt.errors import InputError
from transformer_mt.parts import names_of
from transformer_mt.settings.objectives import objective_class
from transformer_mt.settings.part import PartName, origins, part_title, parts_named
from transformer_mt.settings.section import Mark
from transformer_mt.text.languages import is_natural

# If at least this fraction of the training sources has several sentences, the model has learnt to translate
# several sentences at once.
_SEVERAL_SENTENCES = 0.2
# BLEU counts sequences of up to four tokens: shorter references have none of them.
_FEW_TOKENS = 4.0

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class VocabularyFacts:
    """The facts of a vocabulary that is given, not learnt."""

    settings: dict[str, Any]
    """Its values of keys of `tokenizer`."""
    kinds: list[str]
    """The kind of each of its models."""
    num_control_pieces: int


@dataclass(frozen=True)
class DataFacts:
    """The facts of prepared data, and of the device that trains on them."""

    several_sentences: float
    """Share of the training sources with more than one sentence."""
    reference_tokens: float
    """Mean number of BLEU's tokens in a reference of the validation sets."""
    is_on_gpu: bool


@dataclass(frozen=True)
class Known:
    """Facts that decide what a config leaves open. A field is None if it is unknown or absent."""

    checkpoint: Config | None = None
    """The config stored in the checkpoint that is resumed."""
    parent: Config | None = None
    """The config of the run in `init_from`."""
    vocabulary: VocabularyFacts | None = None
    data: DataFacts | None = None
    batch_tokens: int | None = None
    """The most tokens of a batch that fit the device."""
    last_update: int | None = None
    """The update at which `train.max_epochs` are trained."""


def resolve(written: Config, known: Known) -> Config:
    """The config that is trained, as far as it is known. A pure function, called again when more facts are
    known. InputError if the config contradicts the checkpoint's vocabulary, the parent or `tokenizer.file`.
    """
    config, data = written, known.data
    if known.checkpoint is not None:
        config = with_checkpoint(config, known.checkpoint)
    elif known.parent is not None:
        config = with_parent(config, known.parent)
    if known.vocabulary is not None and (config.tokenizer.file or config.data.has_vocabulary):
        config = with_vocabulary(config, known.vocabulary)
    if config.tokenizer.normalization == "auto":
        config = changed(config, "tokenizer", normalization="compose")
    _check_again(config)
    if not config.data.translates:
        config = with_loss_monitored(config)
    if data is not None:
        config = with_packing(with_monitor(config, data.reference_tokens), data.is_on_gpu)
        if config.decode.split_sentences == "auto":
            config = with_sentence_splitting(config, data.several_sentences)
    if known.batch_tokens is not None and config.train.batch_tokens == "auto":
        config = changed(config, "train", batch_tokens=known.batch_tokens)
    if known.last_update is not None and config.train.max_epochs:
        config = with_last_update(config, known.last_update)
    return config.model_copy(update={"parts": origins(config)})


def _check_again(config: Config) -> None:
    """Raise InputError if keys conflict with values taken from the parent or the vocabulary."""
    for path, kind, name in parts_named(config):  # a part named in a checkpoint may be missing
        if not any(name in names for names in names_of(kind)):
            raise InputError(
                f"`{path}` needs the {kind.replace('_', ' ')} {name}, which is not here: "
                f"{config.parts.get(part_title(kind, name), 'nothing brings it')}"
            )
    try:
        Config.model_validate(config.model_dump())
    except ValidationError as error:
        because = "init_from" if config.init_from else "tokenizer.file"
        lines = sentences(error, {}, Config)
        parts = [part for line in lines for part in ("\n", *line, f", as in `{because}`")]
        raise InputError(*parts[1:]) from None


def with_checkpoint(config: Config, checkpoint: Config) -> Config:
    """The config with the values that the resumed run has already decided: keys taken from its parent or its
    vocabulary, and the values found for `auto`.
    """
    if "monitor" not in config.train.model_fields_set:
        config = changed(config, "train", monitor=checkpoint.train.monitor)
        config = config.model_copy(update={"parts": checkpoint.parts})
    if config.init_from:  # the run has its own copy of the parent's keys
        config = with_keys_of(config, checkpoint, ("model", "tokenizer"))
    elif config.tokenizer.file or config.data.has_vocabulary:
        config = with_keys_of(config, checkpoint, ("tokenizer",))
    if config.tokenizer.normalization == "auto":
        config = changed(config, "tokenizer", normalization=checkpoint.tokenizer.normalization)
    if config.train.batch_tokens == "auto":
        config = changed(config, "train", batch_tokens=checkpoint.train.batch_tokens)
    if config.train.packed == "auto":
        config = changed(config, "train", packed=checkpoint.train.packed)
    if config.decode.split_sentences == "auto":
        config = changed(config, "decode", split_sentences=checkpoint.decode.split_sentences)
    if config.init_from and config.data.language_pieces == "auto":
        config = changed(config, "data", language_pieces=checkpoint.data.language_pieces)
    return config


_FREE = ("tokenizer.file", "model.init")
"""Keys of `model` and `tokenizer` that may differ from the parent's: its weights and vocabulary are used."""


def with_parent(config: Config, parent: Config) -> Config:
    """The config; keys of `model` and `tokenizer` that it leaves out are taken from the parent. InputError,
    with all reasons, if its vocabulary, shape or mechanism differs from the parent's.
    """
    filled = with_keys_of(config, parent, ("model", "tokenizer"))
    filled = changed(filled, "tokenizer", file=None)
    if parent.data.has_language_pieces and config.data.language_pieces == "auto":
        # The parent has never seen a source without language pieces
        both = parent.data.language_pieces == "both"
        filled = changed(filled, "data", language_pieces="both" if both else True)
    child, theirs = flat(filled.model_dump()), flat(parent.model_dump())
    fixed = [key for key in child if key.startswith(("model.", "tokenizer.")) and key not in _FREE]
    if parent.model.has_max_positions:
        fixed.append("data.max_length")
    reasons = [
        f"`{key}` must be {theirs.get(key)!r}, as in {config.init_from}, but is {child[key]!r}"
        for key in fixed
        if child[key] != theirs.get(key) and Mark.CHANGEABLE not in marks(Config, key)
    ]
    if config.tokenizer.file:
        reasons.append("`tokenizer.file` must be left out with init_from, which brings its own vocabulary")
    if not filled.tokenizer.shared and filled.data.language_pieces == "both":
        reasons.append("`data.language_pieces` must not be both with a parent of two vocabularies")
    if reasons:
        raise InputError("\n".join(reasons))
    return filled


def with_vocabulary(config: Config, vocabulary: VocabularyFacts) -> Config:
    """The config with the keys of `tokenizer` that `tokenizer.file`, or the prepared pairs, decide.
    InputError, with all reasons, where the config asks for something else.
    """
    given, reasons = config.tokenizer, []
    where = "tokenizer.file" if given.file else "the prepared pairs of data.train"
    before_tags = vocabulary.settings["vocab_size"] - vocabulary.num_control_pieces
    for key, value in vocabulary.settings.items():
        wanted = getattr(given, key)
        is_without_tags = key == "vocab_size" and before_tags <= wanted <= value
        if key in given.model_fields_set and wanted != value and not is_without_tags:
            reasons.append(
                f"`tokenizer.{key}` must be {value!r}, as in {where}, but is {wanted!r}; leave it out"
            )
    if given.bpe_dropout and set(vocabulary.kinds) != {"bpe"}:
        reasons.append(
            "`tokenizer.bpe_dropout` must be 0.0 with a file of kind "
            f"{' and '.join(vocabulary.kinds)}, but is "
            f"{given.bpe_dropout}"
        )
    if reasons:
        raise InputError("\n".join(reasons))
    return changed(config, "tokenizer", **vocabulary.settings)


def with_monitor(config: Config, reference_tokens: float) -> Config:
    """The config with chrF in place of BLEU where references have too few tokens for BLEU's four-grams."""
    if config.train.monitor != "BLEU" or reference_tokens >= _FEW_TOKENS:
        return config
    return changed(config, "train", monitor=PartName("chrF"))


def with_loss_monitored(config: Config) -> Config:
    """The config monitored by the loss, as no validation set is translated. If one has labels,
    `train.monitor` may also be their exact match. InputError if it is anything else.
    """
    if config.train.monitor == TrainConfig().monitor:
        return changed(config, "train", monitor=PartName("loss"))
    data = config.data
    has_labels = any(objective_class(data.objective_of(corpus)).has_labels for corpus in data.valid_sets)
    may = ("loss", "exact match") if has_labels else ("loss",)
    if config.train.monitor not in may:
        raise InputError(
            f"`train.monitor` must be {' or '.join(may)} where no validation set is translated, but is "
            f"{config.train.monitor}"
        )
    return config


def with_sentence_splitting(config: Config, several_sentences: float) -> Config:
    """The config with `decode.split_sentences` set to true or false, so that translation does not need the
    training data.
    """
    is_single = several_sentences < _SEVERAL_SENTENCES and is_natural(config.data.source_lang)
    return changed(config, "decode", split_sentences=is_single)


def with_packing(config: Config, is_on_gpu: bool) -> Config:
    """The config with `train.packed` set to true or false, so that a run keeps its batches wherever it is
    resumed.
    """
    if config.train.packed != "auto":
        return config
    return changed(config, "train", packed=is_on_gpu and config.why_padded() is None)


def with_last_update(config: Config, last_update: int) -> Config:
    """The config with `train.max_updates` lowered to the updates of `train.max_epochs` if they are fewer."""
    return changed(config, "train", max_updates=max(1, min(config.train.max_updates, last_update)))


def updates_of_epochs(epochs: float, updates_per_epoch: float) -> int:
    """The number of updates in this many epochs, rounded first: 7 epochs of 29/7 updates are 29, not 30."""
    return math.ceil(round(epochs * updates_per_epoch, 6))


def with_keys_of(config: Config, other: Config, sections: Sequence[str]) -> Config:
    """The config; keys of these sections that it leaves out are taken from `other`."""
    values = config.model_dump()
    for name in sections:
        values[name] = _filled(getattr(config, name), getattr(other, name))
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        parts = [part for line in sentences(error, {}, Config) for part in ["\n", *line]]
        raise InputError(*parts[1:]) from None


def _filled(child: BaseModel, theirs: BaseModel) -> dict[str, Any]:
    values = theirs.model_dump()
    for name in child.model_fields_set:
        value, other = getattr(child, name), getattr(theirs, name)
        if isinstance(value, str) and value == "auto":
            continue
        both = isinstance(value, BaseModel) and isinstance(other, BaseModel)
        values[name] = _filled(value, other) if both else child.model_dump()[name]
    return values


def changed(config: Model, section: str, **values: Any) -> Model:
    """The config with other values of some keys of a section."""
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})
