"""Letters that a vocabulary does not keep: those that it lacks, and those that its normalisation replaces."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

from transformer_mt.data.vocabulary.numbering import UNK
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.pair import Pair

_SHOWN = 20


def lost_letters_notes(tokenizer: Tokenizer, pairs: Sequence[Pair], is_given: bool) -> Iterator[str]:
    """Notes with the letters of either kind, and the share of the pairs that have some. A vocabulary that was
    not `is_given` lacks only what its settings leave out.
    """
    if is_given:
        yield from _missing(tokenizer, pairs)
    yield from _replaced(tokenizer, pairs)


def _missing(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Iterator[str]:
    letters: Counter[str] = Counter()
    is_hit = [False] * len(pairs)
    for side, encode in enumerate((tokenizer.encode_src, tokenizer.encode_tgt)):
        texts = [pair[side] for pair in pairs]
        hits = [number for number, ids in enumerate(encode(texts)) if UNK in ids]
        is_known = cache(partial(_is_known, encode))
        for number in hits:
            is_hit[number] = True
            letters.update({c for c in texts[number] if not is_known(c)})
    if any(is_hit):
        yield (
            f"note: the vocabulary lacks {_most_frequent(letters)}, which occur in {_share(is_hit)} of the "
            "pairs: they become <unk>; data.new_pieces (with init_from) adds tokens for them"
        )


def _replaced(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> Iterator[str]:
    sides = [(0, tokenizer.src.normalize), (1, tokenizer.tgt.normalize)]
    used = [set().union(*(pair[side] for pair in pairs)) for side, _ in sides]
    changed = [
        {c for c in used[side] if not c.isspace() and not _keeps(normalize, c)} for side, normalize in sides
    ]
    is_hit = [any(not changed[side].isdisjoint(pair[side]) for side, _ in sides) for pair in pairs]
    if any(is_hit):
        letters = Counter(c for pair in pairs for side, _ in sides for c in changed[side] & set(pair[side]))
        yield (
            f"note: the vocabulary's normalisation replaces {_most_frequent(letters)}, in "
            f"{_share(is_hit)} of the pairs; tokenizer.normalization: auto keeps them, if the vocabulary "
            "is learnt"
        )


def _keeps(normalize: Callable[[str], str], character: str) -> bool:
    kept = normalize(character).replace("▁", " ").strip()
    return unicodedata.normalize("NFD", kept) == unicodedata.normalize("NFD", character)


def _most_frequent(letters: Counter[str]) -> str:
    shown = " ".join(
        letter if letter.isprintable() else f"U+{ord(letter):04X}"
        for letter, _ in letters.most_common(_SHOWN)
    )
    return shown + (f" and {len(letters) - _SHOWN:,} more" if len(letters) > _SHOWN else "")


def _share(is_hit: Sequence[bool]) -> str:
    return f"{sum(is_hit) / len(is_hit):.1%}"


def _is_known(encode: Callable[[list[str]], list[list[int]]], character: str) -> bool:
    return UNK not in encode([character])[0]
