"""Vocabularies that are not learnt from the training pairs: a file's, or that of the run a training begins
from.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.config.resolve import Known, VocabularyFacts, resolve
from transformer_mt.data.vocabulary.new_pieces import with_new_pieces
from transformer_mt.data.vocabulary.sentencepiece_file import (
    tokenizer_settings,
    with_control_pieces,
    with_special_ids,
)
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.errors import InputError


def settle(
    written: Config, known: Known, own: Tokenizer | None = None, parent: Tokenizer | None = None
) -> tuple[Known, Config, Tokenizer | None]:
    """The known facts with those of the vocabulary, the config that they settle, and the vocabulary; None
    where it is to be learnt. `own` is that of a run that is resumed, `parent` that of the run in `init_from`.
    """
    tokenizer = own or given_tokenizer(resolve(written, known), parent)
    if tokenizer is not None:
        known = replace(known, vocabulary=vocabulary_facts(tokenizer))
    return known, resolve(written, known), tokenizer


def vocabulary_facts(tokenizer: Tokenizer) -> VocabularyFacts:
    """The facts of a vocabulary that decide keys of a config."""
    settings = [tokenizer_settings(model) for model in tokenizer.models]
    kinds = [each["kind"] for each in settings]
    return VocabularyFacts({"shared": tokenizer.shared, **settings[0]}, kinds, len(tokenizer.control_ids))


def given_tokenizer(config: Config, parent: Tokenizer | None = None) -> Tokenizer | None:
    """The vocabulary of the run in `init_from` or of `tokenizer.file`, with the tags of the corpora and the
    new pieces; None where one is to be learnt.
    """
    tokenizer, new = _with_tags(config, parent), config.data.new_pieces
    if tokenizer is None or new.text is None:
        return tokenizer
    return with_new_pieces(tokenizer, new.text, new.size)


def _with_tags(config: Config, parent: Tokenizer | None) -> Tokenizer | None:
    wanted = config.data.control_pieces
    if parent is not None and parent.numberings:
        first, *others = parent.numberings
        new = [piece for piece in wanted if piece not in parent.control_ids]
        _refuse_unknown_languages(config, parent, new)
        if taken := [piece for piece in new if piece in first.pieces]:
            raise InputError(
                f"a tag must not be a token of the vocabulary, but {taken[0]} is one; choose another tag"
            )
        return Tokenizer(*parent.models, numberings=[first.with_pieces(new), *others])
    if parent is not None:
        models = parent.models
    elif config.tokenizer.files:
        models = [_read(file) for file in config.tokenizer.files]
    else:
        return None
    return Tokenizer(with_control_pieces(models[0], wanted), *models[1:])


def _refuse_unknown_languages(config: Config, parent: Tokenizer, new: Sequence[str]) -> None:
    """InputError for a language that the parent lacks; a public model has codes of its own."""
    known = [piece[2:-2] for piece in parent.control_ids if piece.startswith(">>")]
    for piece in new:
        code = piece[2:-2]
        if known and piece.startswith(">>") and code not in config.data.new_languages:
            like = [other for other in known if other.startswith(code[:2])]
            hint = f"; did you mean {' or '.join(like[:5])}?" if like else ""
            raise InputError(
                "languages must be the parent's, in its codes, or keys of data.new_languages, but "
                f"{code} is not{hint}"
            )


def _read(file: str) -> bytes:
    try:
        return with_special_ids(Path(file).read_bytes(), file)
    except OSError as error:
        raise InputError(
            f"`tokenizer.file` must be a SentencePiece model, but {file} cannot be read: {error.strerror}"
        ) from None
