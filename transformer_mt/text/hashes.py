"""Numbers that stand for texts, by which duplicates and leaks are found in little memory."""

import hashlib
import unicodedata

from transformer_mt.text.pair import Pair


def pair_key(pair: Pair, near: bool = False) -> int:
    """64 bits that stand for the pair; two pairs of 10 million share them with a chance of 1 in 400,000. Near
    duplicates have the same if asked.
    """
    sides = map(near_text, pair) if near else (side.strip() for side in pair)
    return text_key("\0".join(sides))


def text_key(text: str) -> int:
    """64 bits that stand for the text."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def near_text(text: str) -> str:
    """The text without capitals, spacing, marks and the values of digits, which near-duplicates have in
    common.
    """
    letters = "".join("0" if c.isdigit() else c for c in text.casefold() if c.isalnum())
    return letters or text.strip()


def sentence_key(text: str) -> int:
    """64 bits that stand for the normalised text."""
    text = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return text_key(" ".join(text.casefold().split()))
