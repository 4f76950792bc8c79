"""A SentencePiece model whose pieces have the ids of another vocabulary: those of Marian, of fairseq."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import sentencepiece


class Renumbered:
    """Divides a text as the model does; the id of a piece is its place in `pieces`, or `unknown` without one.

    It has what the project uses of SentencePieceProcessor, under the same names.
    """

    def __init__(
        self, model: sentencepiece.SentencePieceProcessor, pieces: Sequence[str], unknown: int
    ) -> None:
        self._model, self._pieces, self._unknown = model, list(pieces), unknown
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self._id_of = [self.piece_to_id(model.id_to_piece(i)) for i in range(model.vocab_size())]

    def vocab_size(self) -> int:
        return len(self._pieces)

    def normalize(self, text: str) -> str:
        return str(self._model.normalize(text))

    def piece_to_id(self, piece: str) -> int:
        return self._ids.get(piece, self._unknown)

    def id_to_piece(self, id: int) -> str:
        return self._pieces[id]

    def is_unknown(self, id: int) -> bool:
        return id == self._unknown

    def is_byte(self, id: int) -> bool:
        return bool(self._model.is_byte(self._in_model[id]))

    def is_control(self, id: int) -> bool:
        """True if no text is ever divided into this piece. What the model does not know is one all the same
        where the vocabulary has it.
        """
        in_model = self._in_model[id]
        if id == self._unknown or not (self._model.is_control(in_model) or self._model.is_unknown(in_model)):
            return False
        piece = self._pieces[id]
        return self._model.is_control(in_model) or piece not in self._model.encode(piece, out_type=str)

    def get_score(self, id: int) -> float:
        return float(self._model.get_score(self._in_model[id]))

    def encode(self, text: Any, **options: Any) -> Any:
        """Ids of a text, or a list of them for each of several; with return_type="proto" what the model
        gives, with the model's own ids.
        """
        encoded = self._model.encode(text, **options)
        if "return_type" in options:
            return encoded
        if isinstance(text, str):
            return self._renumbered(text, encoded)
        return [self._renumbered(line, ids) for line, ids in zip(text, encoded)]

    def _renumbered(self, text: str, ids: list[int]) -> list[int]:
        if self._model.unk_id() in ids:  # tokens that only the other model knows
            return [self.piece_to_id(piece) for piece in self._model.encode(text, out_type=str)]
        return [self._id_of[i] for i in ids]

    def decode(self, ids: Sequence[int], **options: Any) -> Any:
        """The text of the ids. Pieces that only the other language's model has are written as they stand."""
        decoded = self._model.decode([self._pieces[i] for i in ids], **options)
        return decoded if options else decoded.replace("▁", " ")

    @cached_property
    def _in_model(self) -> list[int]:
        return [self._model.piece_to_id(piece) for piece in self._pieces]
