"""`data.augment`: training pairs changed to how people also write, differently in each epoch.

The change of a pair is a function of the seed, the epoch and the row, so that the lengths of an epoch are
known before its batches are built, and a resumed run sees the same text.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from random import Random

import numpy as np

from transformer_mt.config.data_section import AugmentConfig
from transformer_mt.data.batches.batch import Rows, Sides
from transformer_mt.data.changes.change import ChangeOfSome, random_bits, uniforms
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.text.lines import Pair
from transformer_mt.text.text_changes import (
    FinalMark,
    Languages,
    LowerCase,
    TextChange,
    TitleCase,
    Typos,
    UpperCase,
)

_CASE, _DETAILS, _FIRST_CHANGE = 0, 2, 4
"""Which random number of a row decides what."""
_MOST_BEFORE = 2
"""Control tokens before a source: the target language and a tag."""


def unchanged_by(config: AugmentConfig, pairs: Sequence[Pair], languages: Languages) -> Iterator[str]:
    """A note for each change that is asked for and does nothing to most of the pairs."""
    of: dict[str, TextChange] = {
        "upper": UpperCase(languages), "title": TitleCase(languages), "lower": LowerCase(languages),
        "punctuation": FinalMark(languages), "typos": Typos(),
    }  # fmt: skip
    for name in (name for name, probability in config.model_dump().items() if probability):
        changed = sum(
            of[name](src, tgt, Random(number)) != (src, tgt) for number, (src, tgt) in enumerate(pairs)
        )
        if 2 * changed < len(pairs):
            yield f"note: data.augment.{name} can change {changed:,} of {len(pairs):,} sampled pairs"


class Augmentation(ChangeOfSome):
    """Changes texts. A pair stays as it is if it would become over-long, or if it has unknown characters,
    which cannot be turned back into text.
    """

    def __init__(
        self,
        before: Rows,
        tokenizer: Tokenizer,
        config: AugmentConfig,
        seed: int,
        max_length: int,
        corpora: Sequence[tuple[int, Languages]] = (),
    ) -> None:
        """`corpora` are the pairs of each corpus, in order, and its languages."""
        super().__init__(before)
        self._tokenizer, self._seed, self._max_length = tokenizer, seed, max_length
        self._bounds = np.cumsum([config.upper, config.title, config.lower])
        self._ends = np.cumsum([size for size, _ in corpora])
        languages = [one for _, one in corpora] or [("", "")]
        self._cases: list[list[TextChange]] = [
            [UpperCase(of), TitleCase(of), LowerCase(of)] for of in languages
        ]
        self._changes: list[list[TextChange]] = [[FinalMark(of), Typos()] for of in languages]
        self._probabilities = (config.punctuation, config.typos)
        self._control_ids = set(tokenizer.control_ids.values())
        # With two vocabularies only the source's has control tokens; on the target side their ids are text.
        self._target_control_ids = self._control_ids if tokenizer.shared else set()

    def chosen(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._kinds(epoch, rows).any(axis=0))

    def change(self, epoch: int, rows: np.ndarray, sides: Sides) -> None:
        src, tgt = sides
        kinds = self._kinds(epoch, rows)
        indices = [i for i in range(len(rows)) if not (UNK in src[i] or UNK in tgt[i])]
        texts = [self._changed(epoch, rows[i : i + 1], kinds[:, i], (src[i], tgt[i])) for i in indices]
        new_src = self._tokenizer.encode_src([text for text, _ in texts], num_threads=1)
        new_tgt = self._tokenizer.encode_tgt([text for _, text in texts], num_threads=1)
        for index, src_ids, tgt_ids in zip(indices, new_src, new_tgt):
            before = self._control(src[index], self._control_ids)
            before_tgt = self._control(tgt[index], self._target_control_ids)
            fits = max(len(before) + len(src_ids), len(before_tgt) + len(tgt_ids)) < self._max_length
            # Without byte fallback the vocabulary may lack a capital letter.
            if src_ids and tgt_ids and fits and UNK not in src_ids and UNK not in tgt_ids:
                src_ids, tgt_ids = [*before, *src_ids], [*before_tgt, *tgt_ids]
                src[index], tgt[index] = np.array(src_ids, np.int32), np.array(tgt_ids, np.int32)

    def _kinds(self, epoch: int, rows: np.ndarray) -> np.ndarray:
        """(changes, rows) bool: True if a row gets this change; the first row is for any change of case."""
        case = uniforms(self._seed, epoch, rows, _CASE) < self._bounds[-1]
        others = [
            uniforms(self._seed, epoch, rows, _FIRST_CHANGE + number) < probability
            for number, probability in enumerate(self._probabilities)
        ]
        return np.stack([case, *others])

    def _changed(
        self, epoch: int, row: np.ndarray, kinds: np.ndarray, ids: tuple[np.ndarray, np.ndarray]
    ) -> Pair:
        rng = Random(int(random_bits(self._seed, epoch, row, _DETAILS)[0]))
        src, tgt = self._text(*ids)
        corpus = int(np.searchsorted(self._ends, row[0], "right")) if len(self._ends) else 0
        has_case, *others = kinds.tolist()
        for is_chosen, change in zip(others, self._changes[corpus]):
            if is_chosen:
                src, tgt = change(src, tgt, rng)
        if has_case:
            kind = int(np.searchsorted(self._bounds, uniforms(self._seed, epoch, row, _CASE)[0], "right"))
            src, tgt = self._cases[corpus][kind](src, tgt, rng)
        return src, tgt

    def _text(self, src: np.ndarray, tgt: np.ndarray) -> Pair:
        src_text = src[len(self._control(src, self._control_ids)) :]
        tgt_text = tgt[len(self._control(tgt, self._target_control_ids)) :]
        return self._tokenizer.src.decode(src_text.tolist()), self._tokenizer.tgt.decode(tgt_text.tolist())

    def _control(self, ids: np.ndarray, control: set[int]) -> list[int]:
        """The control tokens at the beginning of a side."""
        return list(takewhile(control.__contains__, ids[:_MOST_BEFORE].tolist()))
