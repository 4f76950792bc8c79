"""Keys that a config takes from another one where it leaves them out: fine-tuning."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from transformer_mt.config.config import Config
from transformer_mt.config.keys import flat, marks
from transformer_mt.config.messages import sentence
from transformer_mt.config.section import Mark
from transformer_mt.errors import InputError


def inherit(config: Config, parent: Config) -> Config:
    """The config with the parent's keys of `model` and `tokenizer` where it leaves them out. InputError, with
    all reasons, where it has another vocabulary, shape or mechanism.
    """
    filled = with_keys_of(config, parent, ("model", "tokenizer"))
    filled = filled.model_copy(update={"tokenizer": filled.tokenizer.model_copy(update={"file": None})})
    if parent.data.has_language_pieces and config.data.language_pieces == "auto":
        # The parent has never seen a source without.
        data = filled.data.model_copy(update={"language_pieces": True})
        filled = filled.model_copy(update={"data": data})
    mine, theirs = flat(filled.model_dump()), flat(parent.model_dump())
    fixed = [key for key in mine if key.startswith(("model.", "tokenizer.")) and key != "tokenizer.file"]
    if parent.model.has_max_positions:
        fixed.append("data.max_length")
    reasons = [
        f"`{key}` must be {theirs.get(key)!r}, as in {config.init_from}, but is {mine[key]!r}"
        for key in fixed
        if mine[key] != theirs.get(key) and Mark.CHANGEABLE not in marks(Config, key)
    ]
    if config.tokenizer.file:
        reasons.append("`tokenizer.file` must be left out with init_from, which brings its own vocabulary")
    if reasons:
        raise InputError("\n".join(reasons))
    return filled


def with_keys_of(config: Config, other: Config, sections: Sequence[str]) -> Config:
    """The config whose keys of these sections are those of `other` where it leaves them out."""
    values = config.model_dump()
    for name in sections:
        values[name] = _filled(getattr(config, name), getattr(other, name))
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        parts = [part for problem in error.errors() for part in ["\n", *sentence(problem, {}, Config)]]
        raise InputError(*parts[1:]) from None


def _filled(mine: BaseModel, theirs: BaseModel) -> dict[str, Any]:
    values = theirs.model_dump()
    for name in mine.model_fields_set:
        own, other = getattr(mine, name), getattr(theirs, name)
        both = isinstance(own, BaseModel) and isinstance(other, BaseModel)
        values[name] = _filled(own, other) if both else mine.model_dump()[name]
    return values
