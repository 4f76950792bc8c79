"""Vocabularies that are not learnt from the training pairs: a file's, or that of the run a training begins
from.
"""

from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.data.vocabulary.sentencepiece_file import (
    tokenizer_settings,
    with_control_pieces,
    with_special_ids,
)
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError


def given_tokenizer(config: Config) -> Tokenizer | None:
    """The vocabulary of `init_from` or of `tokenizer.file`, with the tags of the corpora; None where one is
    to be learnt.
    """
    if config.init_from:
        models = Tokenizer.load(Path(config.init_from)).models
    elif config.tokenizer.files:
        models = [_read(file) for file in config.tokenizer.files]
    else:
        return None
    return Tokenizer(with_control_pieces(models[0], config.data.control_pieces), *models[1:])


def config_from_tokenizer(config: Config, tokenizer: Tokenizer) -> Config:
    """The config with the keys of `tokenizer` that the file decides. InputError, with all reasons, where the
    config asks for something else.
    """
    given, reasons = config.tokenizer, []
    facts = {"shared": tokenizer.shared, **tokenizer_settings(tokenizer.models[0])}
    before_tags = facts["vocab_size"] - len(tokenizer.control_ids)
    for key, value in facts.items():
        found = getattr(given, key)
        is_without_tags = key == "vocab_size" and before_tags <= found <= value
        if key in given.model_fields_set and found != value and not is_without_tags:
            reasons.append(
                f"`tokenizer.{key}` must be {value!r}, as in tokenizer.file, but is {found!r}; leave it out"
            )
    kinds = [tokenizer_settings(model)["kind"] for model in tokenizer.models]
    if given.bpe_dropout and set(kinds) != {"bpe"}:
        reasons.append(
            f"`tokenizer.bpe_dropout` must be 0.0 with a file of kind {' and '.join(kinds)}, but is "
            f"{given.bpe_dropout}"
        )
    if reasons:
        raise InputError("\n".join(reasons))
    return config.model_copy(update={"tokenizer": given.model_copy(update=facts)})


def _read(file: str) -> bytes:
    try:
        return with_special_ids(Path(file).read_bytes(), file)
    except OSError as error:
        raise InputError(
            f"`tokenizer.file` must be a SentencePiece model, but {file} cannot be read: {error.strerror}"
        ) from None
