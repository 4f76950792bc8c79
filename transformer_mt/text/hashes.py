"""Keys of sentences and pairs: what counts as the same text when duplicates and leaks are looked for. After a
change, raise FORMAT in preparation.py: prepared data are cached.
"""

import hashlib
import unicodedata
from typing import Any

from transformer_mt.text.lines import Pair

_MASK = 2**64 - 1


def pair_key(pair: Pair, near: bool = False) -> int:
    """A 64-bit hash of the pair; the chance that two of 10 million pairs have the same is 1 in 400,000. With
    `near`, near-duplicates have the same hash.
    """
    sides = map(near_text, pair) if near else (side.strip() for side in pair)
    return text_key("\0".join(sides))


def text_key(text: str) -> int:
    """64 bits that stand for the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def splitmix64(x: Any) -> Any:
    """Mix 64 bits into 64 bits that look random (Steele et al. 2014). `x` is an int, or an array of uint64
    whose numbers are mixed one by one.
    """
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def near_text(text: str) -> str:
    """What near-duplicates have in common: the text without capitals, spacing, punctuation and the values of
    digits.
    """
    letters = "".join("0" if c.isdigit() else c for c in text.casefold() if c.isalnum() or is_sign(c))
    return letters or text.strip()


def is_sign(character: str) -> bool:
    """True for signs that change the letter before them into another one, as vowels do in Indic scripts and
    Thai; false for accents, and for the vowels of Arabic and Hebrew, which may be left out.
    """
    if character.isascii() or (category := unicodedata.category(character)) not in ("Mn", "Mc"):
        return False
    place = unicodedata.combining(character)
    is_selector = "\ufe00" <= character <= "\ufe0f"  # of an emoji's form
    return category == "Mc" or ((place < 10 or 84 <= place <= 132) and not is_selector)


def sentence_key(text: str) -> int:
    """64 bits that stand for the normalised text."""
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return text_key(" ".join(text.casefold().split()))
