"""What looks wrong with a translation, told from the two texts alone."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

# An address is tried from its first character alone, so that a line without spaces does not take the square of its length.
_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"]*[^\s<>\".,;:!?)]|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w")
_NUMBER = re.compile(r"\d(?:[\d.,' ]*\d)?")
_DIGITS = re.compile(r"\D")


def suspicions(source: str, translation: str, src_pieces: int, tokens: Sequence[str]) -> Iterator[str]:
    """`copied`, `repeating`, `length_ratio`, `missing_number`, `missing_url`: those that are true."""
    if translation == source.strip() and sum(map(str.isalpha, source)) > 0 and len(source.split()) > 1:
        yield "copied"
    if _repeats(tokens):
        yield "repeating"
    longer, shorter = max(src_pieces, len(tokens)), min(src_pieces, len(tokens))
    if longer > 3 * shorter + 5:
        yield "length_ratio"
    # Most lines have neither: then the translation is not searched for them.
    if (numbers := _numbers(source)) and numbers - _numbers(translation):
        yield "missing_number"
    if (urls := Counter(_URL.findall(source))) and urls - Counter(_URL.findall(translation)):
        yield "missing_url"


def _numbers(text: str) -> Counter[str]:
    """The numbers of a text without what groups their digits, which languages write differently."""
    if not _NUMBER.search(text):
        return Counter()
    return Counter(_DIGITS.sub("", number) for number in _NUMBER.findall(_URL.sub(" ", text)))


def _repeats(tokens: Sequence[str]) -> bool:
    """Whether one to four pieces come four times in a row; marks such as ... do not count."""
    if max(Counter(tokens).values(), default=0) < 4:
        return False
    for n in range(1, 5):
        for start in range(len(tokens) - 4 * n + 1):
            first = tokens[start : start + n]
            again = all(tokens[start + k * n : start + (k + 1) * n] == first for k in range(1, 4))
            if again and any(c.isalnum() for piece in first for c in piece):
                return True
    return False
