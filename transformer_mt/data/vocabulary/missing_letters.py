"""Letters that a given vocabulary does not have: the model reads and writes <unk> for them."""

from collections import Counter
from collections.abc import Callable, Sequence

from transformer_mt.data.vocabulary.numbering import UNK
from transformer_mt.data.vocabulary.tokenizer import Tokenizer
from transformer_mt.text.pair import Pair

_SHOWN = 20


def missing_letters_note(tokenizer: Tokenizer, pairs: Sequence[Pair]) -> str | None:
    """A note with the letters, and the share of the pairs that have some; None if the vocabulary has all."""
    letters: Counter[str] = Counter()
    is_hit = [False] * len(pairs)
    for side, encode in enumerate((tokenizer.encode_src, tokenizer.encode_tgt)):
        texts = [pair[side] for pair in pairs]
        hits = [number for number, ids in enumerate(encode(texts)) if UNK in ids]
        is_known = _knower(encode)
        for number in hits:
            is_hit[number] = True
            letters.update({c for c in texts[number] if not is_known(c)})
    if not any(is_hit):
        return None
    shown = " ".join(letter for letter, _ in letters.most_common(_SHOWN))
    more = f" and {len(letters) - _SHOWN:,} more" if len(letters) > _SHOWN else ""
    share = sum(is_hit) / len(pairs)
    return (
        f"note: the vocabulary does not have {shown}{more}, which {share:.1%} of the pairs have: they become "
        "<unk>; data.new_pieces (with init_from) adds pieces for them"
    )


def _knower(encode: Callable[[list[str]], list[list[int]]]) -> Callable[[str], bool]:
    known: dict[str, bool] = {}

    def is_known(character: str) -> bool:
        if character not in known:
            known[character] = UNK not in encode([character])[0]
        return known[character]

    return is_known
