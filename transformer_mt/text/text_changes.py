"""Changes of a pair to how people also write: for `data.augment`, and for a robust evaluation."""

from random import Random
from typing import Protocol

from transformer_mt.text.pair import Pair
from transformer_mt.text.typos import with_typos

# Marks that end sentences, in several scripts.
_FINAL = ".!?。！？।؟…"


class Change(Protocol):
    """One way in which a pair is changed."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair: ...


class UpperCase:
    """Both sides in capitals."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return src.upper(), tgt.upper()


class TitleCase:
    """Each word of both sides with a capital, as in headlines."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return _titled(src), _titled(tgt)


def _titled(text: str) -> str:
    # Not str.title, which takes the letter after an apostrophe for the first of a word.
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))


class LowerCase:
    """The source without capitals; the target keeps its own."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return src.lower(), tgt


class NoFinalMark:
    """Both sides without the mark that ends the sentence, where both have one."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        if not (src.endswith(tuple(_FINAL)) and tgt.endswith(tuple(_FINAL))):
            return src, tgt
        return src.rstrip(_FINAL).rstrip(), tgt.rstrip(_FINAL).rstrip()


class FinalMark:
    """No mark at the end of both sides, or the mark two or three times; each equally often."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        if rng.random() < 0.5:
            return NoFinalMark()(src, tgt, rng)
        if not (src.endswith(tuple(_FINAL)) and tgt.endswith(tuple(_FINAL))):
            return src, tgt
        more = rng.choice((1, 2))
        return src + src[-1] * more, tgt + tgt[-1] * more


class Typos:
    """The source misspelled; the target is right."""

    def __call__(self, src: str, tgt: str, rng: Random) -> Pair:
        return with_typos(src, rng), tgt
