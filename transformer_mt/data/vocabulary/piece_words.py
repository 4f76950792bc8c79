"""Words as groups of pieces: what an aligner aligns. Letters: T pieces of a text, W words of it."""

import re

import numpy as np

from transformer_mt.data.vocabulary.tokenizer import PieceModel
from transformer_mt.text.unsegmented import count_unsegmented

_MARKS = re.compile(r"▁?[^\w▁]+")


class PieceWords:
    """Divides rows of piece ids of one vocabulary. In scripts without spaces each piece is a word; a mark
    such as a comma is one, too.
    """

    def __init__(self, model: PieceModel) -> None:
        size = model.vocab_size()
        self._pieces = [model.id_to_piece(i) for i in range(size)]
        self._is_text = np.array([not (model.is_control(i) or model.is_unknown(i)) for i in range(size)])
        stands_alone = [
            not model.is_byte(i) and (count_unsegmented(piece) > 0 or _MARKS.fullmatch(piece) is not None)
            for i, piece in enumerate(self._pieces)
        ]
        self._stands_alone = np.array(stands_alone) | ~self._is_text
        self._opens_space = np.array([piece.startswith("▁") for piece in self._pieces])

    def word_of(self, ids: np.ndarray) -> np.ndarray:
        """(T,) the number of each piece's word, counted over the text; -1 for a control piece."""
        opens = self._opens_space[ids] | self._stands_alone[ids]
        opens[1:] |= self._stands_alone[ids[:-1]]
        return self._numbered(ids, opens)

    def spaced_word_of(self, ids: np.ndarray) -> np.ndarray:
        """(T,) the same for words as white space divides them."""
        return self._numbered(ids, self._opens_space[ids])

    def _numbered(self, ids: np.ndarray, opens: np.ndarray) -> np.ndarray:
        is_text = self._is_text[ids]
        opens &= is_text
        if is_text.any():
            opens[np.argmax(is_text)] = True
        return np.where(is_text, np.cumsum(opens) - 1, -1)

    def spelling(self, ids: np.ndarray) -> str:
        """The characters of the text without white space."""
        return "".join(self._pieces[i] for i in ids[self._is_text[ids]].tolist()).replace("▁", "")

    def words(self, ids: np.ndarray, word_of: np.ndarray) -> list[str]:
        """(W,) the words in lower case."""
        words = [""] * (int(word_of.max(initial=-1)) + 1)
        for i, word in zip(ids.tolist(), word_of.tolist()):
            if word >= 0:
                words[word] += self._pieces[i]
        return [word.removeprefix("▁").lower() or "▁" for word in words]
