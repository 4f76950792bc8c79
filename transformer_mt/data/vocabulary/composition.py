"""The normalisation `compose`: a letter and its marks become one character, white space becomes a space.

Unicode's NFKC, which SentencePiece uses by default, replaces more: it makes 102 of 10² and No of №, and
other letters of Korean and some Indic ones; SentencePiece's form of it makes a space of Persian's joiner.
"""

import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import permutations

from sentencepiece import SentencePieceNormalizer, set_min_log_level
from sentencepiece.sentencepiece_model_pb2 import NormalizerSpec

COMPOSE = "compose"


@cache
def normalizer_of(normalization: str) -> SentencePieceNormalizer:
    """SentencePiece's rule for a value of `tokenizer.normalization`."""
    if normalization not in ("auto", COMPOSE):
        return SentencePieceNormalizer(rule_name=normalization)
    set_min_log_level(2)  # no warnings
    rules = SentencePieceNormalizer(norm_map=list(_composing_rules()))
    spec = NormalizerSpec.FromString(rules.serialized_normalizer_spec())
    spec.name = COMPOSE
    return SentencePieceNormalizer(normalizer_spec=spec)


def _composing_rules() -> Iterator[tuple[str, str]]:
    """Pairs of a spelling and the character that replaces it."""
    for character in map(chr, range(sys.maxunicode + 1)):
        if character.isspace() and character != " " and unicodedata.category(character) == "Zs":
            yield character, " "
        elif not unicodedata.is_normalized("NFD", character):
            yield from ((spelling, character) for spelling in _other_spellings(character))


def _other_spellings(character: str) -> set[str]:
    """All decomposed spellings of a character: a base character, then marks in any order."""
    letter, *marks = list(unicodedata.normalize("NFD", character))
    spellings: set[str] = set()
    if not marks or not unicodedata.is_normalized("NFC", character):
        return spellings
    for order in permutations(marks):
        for count in range(len(order)):
            spelling = unicodedata.normalize("NFC", letter + "".join(order[:count]))
            spelling += "".join(order[count:])
            if unicodedata.normalize("NFC", spelling) == character:
                spellings.add(spelling)
    return spellings
