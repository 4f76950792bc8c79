"""Log-probabilities that models give many pairs, for the cleaning rule `model_score`."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from transformer_mt.errors import InputError
from transformer_mt.translation.translator import Translator

# Pieces of a side. The log-probabilities of a longer target would take gigabytes.
_MAX_LENGTH = 4096


def log_probs(model: str, pairs: Sequence[tuple[str, str]], languages: tuple[str, str]) -> np.ndarray:
    """The mean log-probability per token of each target, given its source, end-of-sentence counted; -inf for
    a pair longer than the model can take. `languages` are those of the sources and of the targets.
    """
    try:
        translator = _load(model).towards(languages[1], languages[0])
    except InputError as error:
        raise InputError(f"data.filter.model_score: {model}: ", *error.parts) from None
    tokenizer, most = translator.tokenizer, translator.max_positions
    encoded = list(
        zip(translator.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs]))
    )
    fits = [max(len(src), len(tgt)) < (most or _MAX_LENGTH) for src, tgt in encoded]
    each = iter(translator.token_log_probs([pair for pair, fit in zip(encoded, fits) if fit]))
    return np.array([float(np.mean(next(each))) if fit else -np.inf for fit in fits])


def forget_models() -> None:
    """Free the memory of the models that scored pairs."""
    _load.cache_clear()


@lru_cache(maxsize=2)
def _load(model: str) -> Translator:
    return Translator.load(model)
