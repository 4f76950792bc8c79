"""BERT's own task: the pieces behind the masks of a text."""

import re
from dataclasses import dataclass

import torch

from transformer_mt.companions.language_models.loaded_model import TextModel
from transformer_mt.data.vocabulary.tokenizer import BOS, EOS, PAD, UNK
from transformer_mt.errors import InputError
from transformer_mt.settings.objectives import MASK

_MARK = re.compile(r"\[MASK\]|<mask>")


@dataclass(frozen=True)
class Filling:
    """A piece for one mask."""

    piece: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """A text with its masks filled."""

    text: str
    """With the most probable piece at each mask."""
    guesses: list[list[Filling]]
    """For each mask its pieces, the most probable first."""


class MaskFiller:
    """Fills `[MASK]` in texts; several masks of a text are filled independently of each other."""

    def __init__(self, loaded: TextModel) -> None:
        self._model, self._tokenizer, self._device = loaded.model, loaded.tokenizer, loaded.device
        self._most = loaded.config.data.max_length - 1
        if MASK not in loaded.tokenizer.control_ids:
            raise InputError("the model must have been trained with objective: masked_lm, but was not")
        self._mask_id = loaded.tokenizer.control_ids[MASK]
        never = {*range(EOS + 1), *loaded.tokenizer.control_ids.values()}
        ids = range(loaded.tokenizer.src.vocab_size())
        self._is_never_V = torch.tensor([i in never for i in ids], device=loaded.device)

    def fill(self, text: str, top: int = 1) -> Filled:
        """The text with its masks filled, and the `top` most probable pieces of each. InputError if it has no
        mask, or is too long.
        """
        ids = self._ids(text)
        where = [position for position, piece in enumerate(ids) if piece == self._mask_id]
        if not where:
            raise InputError("the text must have [MASK] where a word is to be filled in, but has none")
        if len(ids) > self._most:
            raise InputError(f"the text must have at most {self._most} tokens, but has {len(ids)}")
        src = torch.tensor([[BOS, *ids, EOS]], device=self._device)
        with torch.inference_mode():
            logits_SV = self._model(src, src != PAD, src)[0].float()
        logits_SV = logits_SV.masked_fill(self._is_never_V, -torch.inf)
        guesses = []
        for position in where:
            probabilities, best = logits_SV[position + 1].softmax(dim=-1).topk(min(top, logits_SV.size(1)))
            pieces = self._tokenizer.pieces_src(best.tolist())
            guesses.append([Filling(*guess) for guess in zip(pieces, probabilities.tolist())])
            ids[position] = int(best[0])
        return Filled(self._tokenizer.src.decode(ids), guesses)

    def _ids(self, text: str) -> list[int]:
        """Encode a text: each [MASK], together with the space before it, becomes the id of <mask>."""
        first, *others = _MARK.split(text)
        ids = self._encoded(first)
        for part in others:
            of_part = self._encoded(part)
            ids += [self._mask_id, *(of_part if part[:1].isspace() else self._without_space(of_part))]
        return ids

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer.encode_src([text.strip()], num_threads=1)[0])

    def _without_space(self, ids: list[int]) -> list[int]:
        """Remove the space that SentencePiece puts before each text, as this text continues a word."""
        if not ids:
            return ids
        piece = self._tokenizer.pieces_src(ids[:1])[0].removeprefix("▁")
        inside = [self._tokenizer.src.piece_to_id(piece)] if piece else []
        return ids if inside == [UNK] else [*inside, *ids[1:]]
