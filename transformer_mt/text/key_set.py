"""Hashes of texts, and sets of them that fit the memory."""

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from transformer_mt.text.lines import Pair

_MASK = 2**64 - 1


def pair_key(pair: Pair, near: bool = False) -> int:
    """64 bits that stand for the pair; two pairs of 10 million share them with a chance of 1 in 400,000. Near
    duplicates have the same if asked.
    """
    sides = map(near_text, pair) if near else (side.strip() for side in pair)
    return text_key("\0".join(sides))


def text_key(text: str) -> int:
    """64 bits that stand for the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def splitmix64(x: Any) -> Any:
    """64 bits that look random, a function of 64 bits (Steele et al. 2014): of an int, or of each number in
    an array of uint64.
    """
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _MASK
    return x ^ (x >> 31)


def near_text(text: str) -> str:
    """The text without capitals, spacing, punctuation and the values of digits, which near-duplicates have in
    common.
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


MOST_EXACT = 40_000_000
"""Keys that are kept whole, 8 bytes each: both sides of 20 million pairs."""
_BITS_OF_A_KEY, _PLACES = 16, 8
FILTER_ERROR = 0.0006
"""The share of other sentences that a filter takes for its own: (1 - exp(-8/16))^8."""
_AT_ONCE = 2**18


@dataclass(frozen=True)
class KeySet:
    """Keys as `sentence_key` gives them."""

    exact: np.ndarray
    """In order, each once (uint64)."""
    filters: tuple[np.ndarray, ...] = ()
    """Bloom filters (1970): the bits of each key's places are set (uint8)."""

    @classmethod
    def of(cls, keys: Iterable[int]) -> "KeySet":
        """The set of these keys."""
        array = np.fromiter(keys, np.uint64)
        return cls.of_arrays([array], len(array))

    @classmethod
    def of_arrays(cls, arrays: Iterable[np.ndarray], count: int, most_exact: int = MOST_EXACT) -> "KeySet":
        """The `count` keys of all arrays; of more than `most_exact` a filter, into which one array is read at
        a time.
        """
        if count > most_exact:
            return cls(_NOTHING, (_filter(arrays, count),))
        keys = np.sort(np.concatenate([_NOTHING, *arrays]))
        return cls(
            keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
        )  # np.unique took 30 times as long

    def __or__(self, other: "KeySet") -> "KeySet":
        """The keys of both."""
        exact = KeySet.of_arrays((self.exact, other.exact), len(self.exact) + len(other.exact))
        filters = (*self.filters, *other.filters, *exact.filters)
        known = {hashlib.sha256(bits.data).digest(): bits for bits in filters}
        return KeySet(exact.exact, tuple(known.values()))

    def has(self, keys: Sequence[int] | np.ndarray) -> np.ndarray:
        """For each key whether it is in the set."""
        wanted = np.asarray(keys, np.uint64)
        result = np.zeros(len(wanted), bool)
        if len(self.exact):
            places = np.searchsorted(self.exact, wanted).clip(max=len(self.exact) - 1)
            result |= self.exact[places] == wanted
        for bits in self.filters:
            places = _places(wanted, 8 * len(bits))
            result |= (bits[places >> 3] >> (places & 7).astype(np.uint8) & 1).all(axis=0)
        return result

    @property
    def is_empty(self) -> bool:
        return not (len(self.exact) or self.filters)


_NOTHING = np.empty(0, np.uint64)
NO_KEYS = KeySet(_NOTHING)


def _filter(arrays: Iterable[np.ndarray], count: int) -> np.ndarray:
    bits = np.zeros(-(-count * _BITS_OF_A_KEY // 8), np.uint8)
    for keys in arrays:
        for begin in range(0, len(keys), _AT_ONCE):
            places = np.sort(_places(np.asarray(keys[begin : begin + _AT_ONCE]), 8 * len(bits)), axis=None)
            byte, bit = places >> 3, np.uint8(1) << (places & 7).astype(np.uint8)
            first = np.flatnonzero(np.append(True, byte[1:] != byte[:-1])[: len(byte)])
            # np.bitwise_or.at took three times as long.
            bits[byte[first]] |= np.bitwise_or.reduceat(bit, first)
    return bits


def _places(keys: np.ndarray, size: int) -> np.ndarray:
    """The bits (8, K) of K keys in a Bloom filter of `size` bits (Kirsch and Mitzenmacher 2006)."""
    second = splitmix64(keys) | np.uint64(1)
    steps = np.arange(_PLACES, dtype=np.uint64)[:, None]
    return ((keys + steps * second) % np.uint64(size)).astype(np.int64)
