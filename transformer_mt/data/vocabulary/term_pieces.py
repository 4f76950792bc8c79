"""Terms inside a source: `<term> source pieces <as> target pieces </term>`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.settings.terms_section import AS, TERM, TERM_END

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
