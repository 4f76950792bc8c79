"""Vocabularies that are not learnt from the training pairs: a file's, or that of the run a training begins
from.
"""

from pathlib import Path

from transformer_mt.config import Config
from transformer_mt.data.vocabulary.sentencepiece_file import with_control_pieces, with_special_ids
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


def _read(file: str) -> bytes:
    try:
        return with_special_ids(Path(file).read_bytes(), file)
    except OSError as error:
        raise InputError(
            f"`tokenizer.file` must be a SentencePiece model, but {file} cannot be read: {error.strerror}"
        ) from None
