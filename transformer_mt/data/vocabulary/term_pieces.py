"""Words as spans of pieces, and terms inside a source: `<term> source pieces <as> target pieces </term>`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transformer_mt.data.vocabulary.tokenizer import PieceModel, Tokenizer
from transformer_mt.settings.corpus_keys import AS, TERM, TERM_END
from transformer_mt.text.languages import count_unsegmented

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


PieceTerm = tuple[int, int, Sequence[int]]
"""A term's first piece, the one after its last, and the pieces of its translation."""


@dataclass(frozen=True)
class TermPieces:
    """The control pieces of terms, as ids of a vocabulary."""

    term: int
    as_: int
    end: int

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "TermPieces | None":
        """None where the vocabulary does not have them."""
        ids = tokenizer.control_ids
        return cls(ids[TERM], ids[AS], ids[TERM_END]) if ids.keys() >= {TERM, AS, TERM_END} else None

    def inserted(self, ids: Sequence[int], terms: Iterable[PieceTerm]) -> list[int]:
        """A source with its terms, which follow one another without overlaps."""
        whole: list[int] = []
        done = 0
        for begin, end, target in terms:
            whole += [*ids[done:begin], self.term, *ids[begin:end], self.as_, *target, self.end]
            done = end
        return [*whole, *ids[done:]]

    def text_positions(self, ids: Sequence[int]) -> list[list[int]]:
        """For each piece of the source without its terms the positions that stand for it: its own and, in a
        term, those of the translation.
        """
        positions: list[list[int]] = []
        first: int | None = None
        is_target = False
        for i, piece in enumerate(ids):
            if piece == self.term:
                first = len(positions)
            elif piece == self.as_:
                is_target = True
            elif piece == self.end:
                first, is_target = None, False
            elif not is_target:
                positions.append([i])
            elif first is not None:
                for of_piece in positions[first:]:
                    of_piece.append(i)
        return positions


def pieces_of_span(spans: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[int, int]:
    """The pieces that have characters from `begin` to before `end`, if `spans` are those of all pieces."""
    inside = [i for i, (first, last) in enumerate(spans) if last > begin and first < end]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)
