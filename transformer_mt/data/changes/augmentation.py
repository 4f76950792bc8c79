"""`data.augment`: training pairs changed to how people also write, differently in each epoch.

The change of a pair is a function of the seed, the epoch and the row, so that the lengths of an epoch are
known before its batches are built, and a resumed run sees the same text.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from random import Random
from typing import Protocol

import numpy as np

from transformer_mt.config.data_section import AugmentConfig
from transformer_mt.data.batches.batch import Rows, Sides
from transformer_mt.data.changes.change import ChangeOfSome, random_bits, uniforms
from transformer_mt.data.vocabulary.tokenizer import UNK, Tokenizer
from transformer_mt.text.languages import titled, to_capitals, to_small_letters
from transformer_mt.text.lines import Pair
from transformer_mt.text.sentences import final_mark

Languages = tuple[str, str]
"""Of the source and of the target."""


class TextChange(Protocol):
    """One way in which a pair is changed."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair: ...


class LanguageChange:
    """A change that depends on the languages of the pair."""

    def __init__(self, languages: Languages = ("", "")) -> None:
        self._source_lang, self._target_lang = languages


class UpperCase(LanguageChange):
    """Both sides in capitals."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return "".join(to_capitals(src, self._source_lang)), "".join(to_capitals(tgt, self._target_lang))


class TitleCase(LanguageChange):
    """Each word of both sides with a capital, as in headlines."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return titled(src, self._source_lang), titled(tgt, self._target_lang)


class LowerCase(LanguageChange):
    """The source without capitals; the target keeps its own."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return to_small_letters(src, self._source_lang), tgt


class NoFinalMark(LanguageChange):
    """Both sides without the mark that ends the sentence, where both have one."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return self._with_marks(src, tgt, lambda mark: "")

    def _with_marks(self, src: str, tgt: str, change: Callable[[str], str]) -> Pair:
        sides = []
        for text, language in ((src, self._source_lang), (tgt, self._target_lang)):
            if (span := final_mark(text, language)) is None:
                return src, tgt
            begin, end = span
            sides.append((text[:begin] + change(text[begin:end])).rstrip() + text[end:])
        return sides[0], sides[1]


class FinalMark(NoFinalMark):
    """No mark at the end of both sides, or the mark two or three times; each equally often."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        if rng.random() < 0.5:
            return super().__call__(src, tgt, rng)
        more = rng.choice((1, 2))
        return self._with_marks(src, tgt, lambda mark: mark + mark[-1] * more)


class Typos:
    """The source misspelled; the target is right."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return with_typos(src, rng), tgt


# Rows of keys, by script. Neighbours are left and right of a key, above and below it.
_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    ("ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("ضصثقفغعهخحج", "شسيبلاتنمكط", "ئءؤرىةوزظ"),
    ("קראטוןםפ", "שדגכעיחלך", "זסבהנמצתץ"),
)
_LETTERS_OF_A_TYPO = 40
"""Letters per typo; a source has at least one."""


def _neighbours() -> dict[str, str]:
    neighbours_of: dict[str, str] = {}
    for rows in _KEYBOARDS:
        for number, row in enumerate(rows):
            for position, key in enumerate(row):
                neighbours = row[max(0, position - 1) : position] + row[position + 1 : position + 2]
                for other in (number - 1, number + 1):
                    if 0 <= other < len(rows):
                        neighbours += rows[other][position : position + 1]
                neighbours_of[key] = neighbours
    return neighbours_of


_NEIGHBOURS = _neighbours()


def with_typos(text: str, rng: Random) -> str:
    """The text with some typos; scripts without a known keyboard have no wrong keys."""
    letters = [i for i, character in enumerate(text) if character.isalpha()]
    if len(letters) < 2:
        return text
    characters = list(text)
    for _ in range(max(1, len(letters) // _LETTERS_OF_A_TYPO)):
        _misspell(characters, rng.choice(letters), rng)
    return "".join(characters)


def _misspell(characters: list[str], position: int, rng: Random) -> None:
    """Make one typo in place; afterwards an element may be an empty string or several characters."""
    letter = characters[position]
    if len(letter) != 1:
        return
    neighbours = _NEIGHBOURS.get(letter.lower(), "")
    kind = rng.choice(["swap", "drop", "double", *(["key"] if neighbours else [])])
    follows = characters[position + 1] if position + 1 < len(characters) else ""
    if kind == "swap" and follows.isalpha():
        characters[position], characters[position + 1] = follows, letter
    elif kind == "key":
        other = rng.choice(neighbours)
        characters[position] = other.upper() if letter.isupper() else other
    elif kind == "drop":
        characters[position] = ""
    else:
        characters[position] = letter * 2


_CASE, _DETAILS, _FIRST_CHANGE = 0, 2, 4
"""Which random number of a row decides what."""
_MOST_BEFORE = 2
"""Control pieces before a source: the target language and a tag."""


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
    """Changes texts. A pair that would be over-long, and one with unknown characters, which have no text,
    stays as it is.
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
        """(changes, rows) bool: True where a row gets this change; the changes of case come first."""
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
