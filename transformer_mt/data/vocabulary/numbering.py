"""The ids that another software gave to the pieces of a vocabulary, beside ours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformer_mt.errors import InputError

PAD, UNK, BOS, EOS = 0, 1, 2, 3

_SPECIAL = ("pad", "unk", "bos", "eos")


@dataclass(frozen=True)
class Numbering:
    """A vocabulary in our order: PAD, UNK, BOS, EOS, then all others as they follow one another there."""

    pieces: list[str]
    """By our ids."""
    special: dict[str, int]
    """The ids there of pad, unk, bos and eos. Equal ones are one piece there, of which the first has the
    name.
    """
    language_form: str = ">>{}<<"
    """How pieces of languages are written there; here they are `>>de<<`."""

    @classmethod
    def of(
        cls, foreign: Mapping[str, int], special: Mapping[str, int], language_form: str = ">>{}<<"
    ) -> "Numbering":
        """From the ids of all pieces there; those of the special ones are 0 to 3 here."""
        by_id = {i: piece for piece, i in foreign.items()}
        if len(by_id) < len(foreign) or sorted(by_id) != list(range(len(by_id))):
            raise InputError(
                f"the vocabulary must number its {len(foreign)} tokens from 0 to {len(foreign) - 1}, but "
                "does not"
            )
        names = ["" if special[name] in _before(special, name) else by_id[special[name]] for name in _SPECIAL]
        new = iter(name for name in ("<s>", "<start>", "<begin>") if name not in foreign)
        others = [by_id[i] for i in range(len(by_id)) if i not in special.values()]
        return cls([*(name or next(new) for name in names), *others], dict(special), language_form)

    @property
    def order(self) -> list[int]:
        """For each id there, our id of the same piece; of what is one piece there, the last: a decoder of
        Marian begins with its PAD.
        """
        special = {self.special[name]: ours for ours, name in enumerate(_SPECIAL)}
        others = iter(range(len(_SPECIAL), len(self.pieces)))
        size = len(self.pieces) - len(_SPECIAL) + len(special)
        return [special[i] if i in special else next(others) for i in range(size)]

    def foreign_ids(self) -> list[int]:
        """For each of our ids the one in the other vocabulary."""
        foreign = {ours: i for i, ours in enumerate(self.order)}
        return [
            self.special[_SPECIAL[i]] if i < len(_SPECIAL) else foreign[i] for i in range(len(self.pieces))
        ]

    def with_pieces(self, new: Sequence[str]) -> "Numbering":
        """With new pieces after all others."""
        return replace(self, pieces=[*self.pieces, *new])

    def name_there(self, piece: str) -> str:
        """The name of a piece there."""
        return self.language_form.format(piece[2:-2]) if piece.startswith(">>") else piece

    def facts(self) -> dict[str, Any]:
        """The facts from which `Numbering(**facts)` makes the same again."""
        return {"special": self.special, "language_form": self.language_form, "pieces": self.pieces}


def _before(special: Mapping[str, int], name: str) -> list[int]:
    return [special[other] for other in _SPECIAL[: _SPECIAL.index(name)]]
