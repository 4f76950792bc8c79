"""Long text in parts a model was trained for: at sentence ends, else between clauses, words, characters; nothing is lost."""

import re
from collections.abc import Callable, Sequence

from transformer_mt.data.scripts import is_spaceless

Count = Callable[[Sequence[str]], list[int]]

# Where a text may be parted, the best places first. What each matches stays with the part before it. A run of marks is tried from
# its first alone: from each, a line of 20,000 dots would take their square.
_SENTENCE = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*\s+|[。！？]+[”’」』）]*\s*")
_CLAUSE = re.compile(r"[,;:–—]\s+|[，、；：]")
_WORD = re.compile(r"\s+")
# Ends that are no ends: an initial, or a short abbreviation, before the full stop.
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e|z\.B|d\.h|bzw|ca|Nr|No|Jr|Sr)\.$"
)
_ABBREVIATION_LENGTH = 8  # no longer, with what stands before


def split_text(text: str, most: int, count: Count) -> list[str]:
    """The text in parts of at most `most` pieces each, in order; a text that fits is one part.

    `count` gives the number of pieces of each of some texts. Sentences stay apart, as in training; parts of a sentence
    are as long as can be.
    """
    if count([text])[0] <= most:
        return [text]
    parts: list[str] = []
    for sentence in _cut(text, _SENTENCE):
        parts += _fit(sentence, most, count, (_CLAUSE, _WORD))
    return [part for part in (part.strip() for part in parts) if part]


def _fit(text: str, most: int, count: Count, separators: Sequence[re.Pattern[str]]) -> list[str]:
    if count([text])[0] <= most:
        return [text]
    if not separators:
        middle = len(text) // 2
        if middle == 0:  # one character of more pieces than a model takes: there is nothing smaller
            return [text]
        return _fit(text[:middle], most, count, ()) + _fit(text[middle:], most, count, ())
    pieces = _cut(text, separators[0])
    parts: list[str] = []
    size = most + 1
    for piece, length in zip(pieces, count(pieces)):
        if size + length <= most:
            parts[-1] += piece
            size += length
        elif length <= most:
            parts.append(piece)
            size = length
        else:
            parts += _fit(piece, most, count, separators[1:])
            size = most + 1
    return parts


def _cut(text: str, separator: re.Pattern[str]) -> list[str]:
    """The text after each match cut in two; abbreviations do not end a sentence."""
    parts, start = [], 0
    for match in separator.finditer(text):
        if separator is _SENTENCE:
            end = match.start() + len(match.group().rstrip())
            if _ABBREVIATION.search(text, max(0, end - _ABBREVIATION_LENGTH), end):
                continue
        parts.append(text[start : match.end()])
        start = match.end()
    return [*parts, text[start:]] if start < len(text) else parts


def joiner(target_lang: str) -> str:
    """What stands between two sentences of a language."""
    return "" if is_spaceless(target_lang) else " "
