"""Changes of a pair to how people also write: for `data.augment`, and for a robust evaluation."""

from collections.abc import Callable
from random import Random
from typing import Protocol

from transformer_mt.text.final_marks import final_mark
from transformer_mt.text.letter_case import titled, to_capitals, to_small_letters
from transformer_mt.text.pair import Pair
from transformer_mt.text.typos import with_typos

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
