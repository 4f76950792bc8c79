"""GPT's own task: a text continued."""

from transformer_mt.companions.language_models.loaded_model import TextModel
from transformer_mt.config import DecodeConfig
from transformer_mt.errors import InputError, Setting
from transformer_mt.translation.engines.engine import Request
from transformer_mt.translation.engines.torch_engine import TorchEngine

MOST = 50
"""Pieces of a completion, unless `max_length` says otherwise."""


class Completer:
    """Continues texts by the searches that translations are found by."""

    def __init__(self, loaded: TextModel, decode: DecodeConfig) -> None:
        self._engine = TorchEngine(loaded.model, loaded.tokenizer)
        self._tokenizer, self._decode = loaded.tokenizer, decode
        self._positions = loaded.config.data.max_length
        self._engine.check(decode)
        if decode.search == "mbr":
            raise InputError(
                Setting("decode.search"), " must be beam or sample to complete a text, but is mbr"
            )

    def complete(self, text: str) -> list[str]:
        """The text with each of its completions, the best first. InputError where nothing more fits."""
        ids = self._tokenizer.encode_tgt([text], num_threads=1)[0]
        left = self._positions - len(ids)
        if left < 1:
            raise InputError(
                f"the text must have fewer than {self._positions} tokens (data.max_length), but has "
                f"{len(ids)}"
            )
        least = self._decode.min_length
        if least >= left:
            raise InputError(
                Setting("decode.min_length"),
                f" must be below {left} after this text (data.max_length), but is {least}",
            )
        limit = min(left, max(self._decode.max_length or MOST, least) + 1)
        request = Request([], limit, prompt=ids)
        wanted = self._decode.num_hypotheses
        ((_, hypotheses),) = self._engine.search([request], self._decode, wanted)
        as_read = self._tokenizer.decode_tgt(ids)  # not always as it was given: normalised
        texts = [self._tokenizer.decode_tgt([*ids, *hypothesis.tokens]) for hypothesis in hypotheses]
        whole = (text.rstrip() + one[len(as_read) :] if one.startswith(as_read) else one for one in texts)
        return list(dict.fromkeys(whole)) or [text]
