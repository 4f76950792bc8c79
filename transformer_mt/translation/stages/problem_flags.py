"""Suspicions about a translation, judged from the two texts alone."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformer_mt.text.literal_text import ADDRESS, OF_PROGRAMS
from transformer_mt.text.unsegmented import count_unsegmented
from transformer_mt.translation.result import Translation
from transformer_mt.translation.stages.stage import Stage
from transformer_mt.translation.units import TranslatedLine

_ADDRESS = re.compile(ADDRESS)
# 1,250 and 1.250 and 1 250: the separator between groups of three digits differs between languages.
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?!\d)")
_NUMBER = re.compile(r"\d+")


class Flags(Stage):
    """Flags results."""

    def finish(self, line: TranslatedLine, result: Translation) -> Translation:
        src_pieces = sum(len(unit.unit.src) for unit in line.units)
        suspicious = list(text_flags(result.source, result.translation, src_pieces, result.tokens))
        if "no_hypothesis" in result.flags or any(unit.parts or unit.unit.is_fixed for unit in line.units):
            # Such a line has text without tokens, or none at all, so the ratio means nothing.
            suspicious = [flag for flag in suspicious if flag != "length_ratio"]
        return replace(result, flags=list(dict.fromkeys([*result.flags, *suspicious])))


def text_flags(source: str, translation: str, src_pieces: int, tokens: Sequence[str]) -> Iterator[str]:
    """`copied`, `repeating`, `length_ratio`, `missing_number`, `missing_url`: those
    that are true.
    """
    if translation.strip() == source.strip() and _num_words(source) > 1 and any(map(str.isalpha, source)):
        yield "copied"  # not flagged for one word: it may be a name
    if _repeats(tokens):
        yield "repeating"
    longer, shorter = max(src_pieces, len(tokens)), min(src_pieces, len(tokens))
    if longer > 3 * shorter + 5:
        yield "length_ratio"
    # Most sources have no numbers or addresses; then the translation need not be searched.
    if (numbers := _numbers(source)) and numbers - _numbers(translation):
        yield "missing_number"
    if (urls := _urls(source)) and urls - _urls(translation):
        yield "missing_url"


def _num_words(text: str) -> int:
    return len(text.split()) + count_unsegmented(text) // 3


def _numbers(text: str) -> Counter[str]:
    """The numbers of a text. A decimal counts as two: 3.5 may be translated as 3,5, and 10:30 as 10.30."""
    if not _NUMBER.search(text):
        return Counter()
    plain = OF_PROGRAMS.sub(" ", text)
    whole = _GROUPED.sub(lambda grouped: "".join(_NUMBER.findall(grouped.group())), plain)
    return Counter(_NUMBER.findall(whole))


def _urls(text: str) -> Counter[str]:
    return Counter(_ADDRESS.findall(text) if any(mark in text for mark in (":", "www.", "@")) else ())


def _repeats(tokens: Sequence[str]) -> bool:
    """True if a group of one to four tokens comes four times in a row; marks such as ... do not count."""
    if len(tokens) - len(set(tokens)) < 3 or max(Counter(tokens).values()) < 4:
        return False
    for n in range(1, 5):
        for start in range(len(tokens) - 4 * n + 1):
            first = tokens[start : start + n]
            again = all(tokens[start + k * n : start + (k + 1) * n] == first for k in range(1, 4))
            if again and any(c.isalnum() for piece in first for c in piece):
                return True
    return False
